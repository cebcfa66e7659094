"""Replicas that exchange gradients or models: `ddp`, `accumulate`, `local_sgd`."""

import contextlib
import inspect
from typing import Any, List, Optional

import torch
from torch import Tensor
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

from stagebench.adapters.pytorch.exchange import WORDS, Averaging, CompressedExchange, Exchange, compression_hook
from stagebench.adapters.pytorch.replica import ReplicaTrainer, microbatches
from stagebench.suite.worker.contract import Batch, LayerTimes, Setup, Unsupported, chosen
from stagebench.suite.worker.trainer import Notes


class DDP(Averaging, ReplicaTrainer):
    """A replica on every rank; buckets of gradients are averaged during the backward.

    A staged forward is not DDP's own, so that its hooks keep silent in the backward.
    """

    _ddp: Any = None

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        # On one rank nothing is sent, so there is nothing to compress.
        self._compression = chosen(setup, "compression", default="none") if setup.world > 1 else "none"
        # PowerSGD's matrices are views that other layouts do not have.
        self.contiguous = chosen(setup, "compression", default="none") == "powersgd"
        self._options = {
            "bucket_cap_mb": chosen(setup, "bucket_cap_mb", default="auto"),
            "static_graph": chosen(setup, "static_graph", default=False),
            "gradient_as_bucket_view": chosen(setup, "gradient_as_bucket_view", default=False, tuned=True),
            "forward_sync_buffers": chosen(setup, "forward_sync_buffers", default=True, tuned=False),
        }

    def communicate(self) -> None:
        """Send the first rank's buffers, where DDP keeps them alike in each step, then average gradients."""
        if self._exchange is not None and self._options["forward_sync_buffers"] and self._ddp.modules_buffers:
            self._ddp._sync_buffers()
        super().communicate()

    def step_alone(self, batch: Batch) -> None:
        """Step under DDP's no_sync, and without its broadcast of buffers.

        DDP decides on that by the step before: of two steps of each kind in turns, one of either would send them.
        """
        self._ddp.require_forward_param_sync = False
        with self._ddp.no_sync():
            self.step(batch)
        self._ddp.require_forward_param_sync = True

    def notes(self) -> Notes:
        waits = ", bucket after bucket" * self._waits()
        return dict(super().notes(), ddp=self._options, compression=WORDS[self._compression] + waits)

    def gradient_bytes(self) -> Optional[int]:
        """Return half the bits of a float32 where compressed; None of PowerSGD, whose matrices' shapes decide."""
        whole = super().gradient_bytes()
        if whole is None or self._compression == "none":
            return whole
        return None if self._compression == "powersgd" else 2 * self.parameter_count()

    def _waits(self) -> bool:
        """Return whether the hook takes one bucket after the other."""
        return self._compression == "powersgd" and self.group is not None and self.group.transport == "gloo"

    def _wrap(self) -> None:
        self._ddp = wrap(self._net, self._device, self._options)
        parameters = list(self._net.parameters())
        if self._compression != "none":
            waits = self._waits()
            self._ddp.register_comm_hook(*compression_hook(self._compression, waits))
            self._exchange = CompressedExchange(parameters, self._ddp, compression_hook(self._compression, waits))
        elif self.setup.world > 1:
            self._exchange = Exchange(parameters, self._ddp)
        # Compiled around DDP, not inside it: the compiler then splits the graph at the buckets.
        self._native_net = self._perhaps_compiled(self._ddp)

    def _release(self) -> None:
        self._ddp = self._exchange = None
        super()._release()


class Accumulate(DDP):
    """The batch in pieces, exchanged with the last one, as DDP's documentation teaches; on one rank without DDP."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.grouped = setup.world > 1
        self.pieces = int(setup.knobs["microbatches"])
        self._losses: List[Tensor] = []

    def forward(self, batch: Batch) -> None:
        """Compute every piece and keep what all of their backwards need: more memory than a native step takes."""
        answers = []
        self._losses = []
        for piece in microbatches(batch, self.pieces):
            heads, loss = self._evaluate(self._staged_net, piece)
            answers.append(heads[-1].detach())
            self._losses.append(loss / self.pieces)
        self._heads = [torch.cat(answers)]
        self._loss = torch.stack([loss.detach() for loss in self._losses]).sum()

    def backward(self) -> None:
        """Let autograd add up the pieces' gradients."""
        for loss in self._losses:
            loss.backward()
        self._losses = []

    def step(self, batch: Batch) -> None:
        """Take all pieces but the last under no_sync."""
        *earlier, last = microbatches(batch, self.pieces)
        with contextlib.ExitStack() as stack:
            if self._ddp is not None:
                stack.enter_context(self._ddp.no_sync())
            total = sum(self._accumulated(piece) for piece in earlier)
        total = total + self._accumulated(last)
        self._optimise()
        self._loss = total

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("the batch goes through the network in pieces, and gradients add up over them")

    def notes(self) -> Notes:
        """Omit DDP's options where there is no DDP."""
        notes = super().notes() if self.grouped else ReplicaTrainer.notes(self)
        return dict(notes, microbatches=self.pieces)

    def _accumulated(self, piece: Batch) -> Any:
        """Add a piece's gradients, and return its share of the loss."""
        loss = self._evaluate(self._native_net, piece)[1] / self.pieces
        loss.backward()
        return loss.detach()

    def _wrap(self) -> None:
        if self.grouped:
            super()._wrap()

    def _release(self) -> None:
        self._losses = []
        super()._release()


class LocalSGD(ReplicaTrainer):
    """Every rank trains alone, the models are averaged now and then (Stich 2018); momentum stays its own."""

    contiguous_weights = True  # as the averager leaves them
    _averager: Any = None

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.grouped = setup.world > 1
        self.period = int(setup.knobs["period"])

    def step_alone(self, batch: Batch) -> None:
        averager = self._averager
        self._averager = None
        self.step(batch)
        self._averager = averager

    def gradient_bytes(self) -> Optional[int]:
        """Return a step's mean: the parameters, once a period."""
        whole = super().gradient_bytes()
        return None if whole is None else -(-whole // self.period)

    def notes(self) -> Notes:
        period = self.period  # the averager asks step % period, and counts from 0
        words = f"models averaged after the steps 1, {period + 1}, {2 * period + 1}, ..."
        return dict(super().notes(), local_sgd=words)

    def _optimise(self) -> None:
        self._clip()
        self._optimiser.step()
        if self._averager is not None:
            self._averager.average_parameters(self._net.parameters())  # it leaves out what has no gradient
        self._optimiser.zero_grad(set_to_none=True)

    def _wrap(self) -> None:
        if self.grouped:
            self._averager = PeriodicModelAverager(period=self.period, warmup_steps=0)

    def _release(self) -> None:
        self._averager = None
        super()._release()


def wrap(net: Any, device: torch.device, options: Notes, group: Any = None) -> Any:
    """Return DistributedDataParallel over a network, with the options that the knobs of these names ask for."""
    options = dict(options)
    if options["bucket_cap_mb"] == "auto":
        del options["bucket_cap_mb"]  # DDP's small first bucket goes with its default alone
    if "forward_sync_buffers" not in inspect.signature(DistributedDataParallel.__init__).parameters:
        options["broadcast_buffers"] = options.pop("forward_sync_buffers")  # its name before torch 2.13
    devices = [device] if device.type == "cuda" else None
    return DistributedDataParallel(net, device_ids=devices, process_group=group, **options)
