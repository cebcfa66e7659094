"""`ddp`: DistributedDataParallel."""

import inspect
from typing import Any, Dict, Optional

import torch
from torch.nn.parallel import DistributedDataParallel

from adapters.pytorch.exchange import Averaging, CompressedExchange, Compression, Exchange, limits_of
from adapters.pytorch.replica import ReplicaTrainer
from suite.worker.contract import Batch, Setup, chosen
from workloads.graph import Graph


class DDP(Averaging, ReplicaTrainer):
    """A replica on every rank; buckets of gradients are averaged during the backward.

    A staged forward is not DDP's own, so that its hooks keep silent in the backward.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._compressed = chosen(setup, "compression", default="none")
        self._options = {
            "bucket_cap_mb": chosen(setup, "bucket_cap_mb", default="auto"),
            "static_graph": chosen(setup, "static_graph", default=False),
            "gradient_as_bucket_view": chosen(setup, "gradient_as_bucket_view", default=False, tuned=True),
            "forward_sync_buffers": chosen(setup, "forward_sync_buffers", default=True, tuned=False),
        }
        self._ddp: Any = None

    def communicate(self) -> None:
        """Send the first rank's buffers, where DDP keeps them alike in each step, then average gradients."""
        if self._exchange is not None and self._options["forward_sync_buffers"] and self._ddp.modules_buffers:
            self._ddp._sync_buffers()
        super().communicate()

    def step_alone(self, batch: Batch) -> None:
        """The step under DDP's no_sync, and without its broadcast of buffers.

        DDP decides on that by the step before: of two steps of each kind in turns, one of either would send them.
        """
        self._ddp.require_forward_param_sync = False
        with self._ddp.no_sync():
            self.step(batch)
        self._ddp.require_forward_param_sync = True

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), ddp=self._options, compression=self._compression().words)

    def gradient_bytes(self) -> Optional[int]:
        """Compressed to half the bits of a float32; None of PowerSGD, whose matrices' shapes decide."""
        whole = super().gradient_bytes()
        if whole is None or self._compressed == "none":
            return whole
        return None if self._compressed == "powersgd" else 2 * self.parameter_count()

    def _compression(self) -> Compression:
        # On one rank nothing is sent, so there is nothing to compress.
        name = self._compressed if self.setup.world > 1 else "none"
        return Compression(name, self.group.transport if self.group else "")

    def _memory_format(self, graph: Graph) -> Any:
        if self._compressed == "powersgd":
            return torch.contiguous_format  # its matrices are views that other layouts do not have
        return super()._memory_format(graph)

    def _wrap(self) -> None:
        wrapped, compression = wrap(self._net, self._device, self._options), self._compression()
        compression.register(wrapped)
        self._ddp = wrapped
        # Compiled around DDP, not inside it: the compiler then splits the graph at the buckets.
        self._native_net = self._perhaps_compiled(wrapped)
        parameters, limits = list(self._net.parameters()), limits_of(wrapped)
        if compression.lossy:
            self._exchange = CompressedExchange(parameters, limits, compression)
        elif self.setup.world > 1:
            self._exchange = Exchange(parameters, limits)

    def _release(self) -> None:
        self._ddp = self._exchange = None
        super()._release()


def wrap(net: Any, device: Any, options: Dict[str, Any], group: Any = None) -> Any:
    """DistributedDataParallel over a network, with the options that the knobs of these names ask for."""
    options = dict(options)
    if options["bucket_cap_mb"] == "auto":
        del options["bucket_cap_mb"]  # DDP's small first bucket goes with its default alone
    if "forward_sync_buffers" not in inspect.signature(DistributedDataParallel.__init__).parameters:
        options["broadcast_buffers"] = options.pop("forward_sync_buffers")  # its name before torch 2.13
    devices = [device] if device.type == "cuda" else None
    return DistributedDataParallel(net, device_ids=devices, process_group=group, **options)
