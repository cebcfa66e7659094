"""PyTorch's trainer: eager or compiled, alone, under DistributedDataParallel or under DataParallel.

Oldest Python: 3.6.
"""

import gc
import inspect
from typing import Any, Dict, List, Optional

import numpy as np
import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from adapters.pytorch import machine
from adapters.pytorch.group import Exchange, Group, limits_of
from adapters.pytorch.net import Net, joint_loss
from adapters.pytorch.pixels import Normalise
from adapters.pytorch.reading import reader_of
from adapters.pytorch.solvers import described, solver
from suite.worker.trainer import Batch, Joined, Setup, Trainer, Unsupported
from workloads.graph import Graph


class PyTorchTrainer(Trainer):
    """Trains a lowered graph with torch.optim."""

    def __init__(self, setup: Setup) -> None:
        """Resolve what "auto" means for this tuning."""
        super().__init__(setup)
        tuned = setup.tuning == "tuned"
        self._tuned = tuned
        self._knobs: Dict[str, Any] = {"memory_format": "auto", "compile": False}
        self._knobs.update(bucket_cap_mb="auto", static_graph=False)
        self._knobs.update(gradient_as_bucket_view="auto", forward_sync_buffers="auto")
        self._knobs.update(setup.knobs)
        for name, auto in (("gradient_as_bucket_view", tuned), ("forward_sync_buffers", not tuned)):
            if self._knobs[name] == "auto":
                self._knobs[name] = auto
        self._group: Optional[Group] = None
        self._reader: Any = None
        self._normalise: Any = None
        self._dtype = torch.float64 if setup.precision == "float64" else torch.float32
        self._net: Any = None
        self._alone: Any = None
        self._parallel: Any = None
        self._optimiser: Any = None
        self._exchange: Optional[Exchange] = None
        self._no_sync: Any = None
        self._loss: Any = None
        self._heads: List[torch.Tensor] = []

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        """Threads, device, group."""
        setup = self.setup
        self._device = machine.prepare(setup, self._tuned, self._knobs["compile"])
        if setup.strategy == "ddp":
            self._group = Group(setup)
            return Joined(self._group.rank, self._group.world, self._group.transport, machine.versions(setup.device))
        transport = "cuda copies" if setup.devices > 1 else "none"
        return Joined(0, 1, transport, machine.versions(setup.device), setup.devices)

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Lower, place, wrap; a second call starts afresh."""
        self._release()
        # The masks of dropout: every rank its own, the same again after every build.
        torch.manual_seed((self.setup.seed * 1000003 + self.setup.rank) % 2**63)
        self._shape = graph.input_shape
        self._shares = [head.weight for head in graph.heads]
        self._layout = self._memory_format(graph)
        self._net = Net(graph, weights, fast=self._tuned)
        self._net.to(self._device, self._dtype, memory_format=self._layout).train()
        parameters = list(self._net.parameters())
        self._alone = torch.compile(self._net) if self._knobs["compile"] else self._net
        self._parallel = self._alone
        if self._group is not None:
            self._wrap(parameters)
        elif self.setup.strategy == "dp":
            # Its staged forward scatters as its native one does: there is no other.
            self._alone = self._parallel = DataParallel(self._alone, device_ids=list(range(self.setup.devices)))
        self._optimiser = solver(parameters, self.setup.optimiser, self._tuned)

    def synchronize(self) -> None:
        """Wait for the device; a CPU has done it already."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def close(self) -> None:
        """Stop the readers, leave the group."""
        if self._reader is not None:
            self._reader.close()
        if self._group is not None:
            # DDP's reducer holds the group, whose threads must end before the interpreter does:
            # one that lets go of a tensor later aborts the process (pytorch/pytorch#179291).
            self._release()
            self._group.close()

    # --- data ---------------------------------------------------------------

    def open_input(self, source: Any) -> None:
        """Read files with DataLoader, take what lies in memory."""
        if source.records is not None:
            raise Unsupported("PyTorch has no records of its own and does not read %s" % source.records.form)
        self._reader = reader_of(source, self.setup)
        about = source.source.photographs
        self._normalise = Normalise(about.how, about.crop, self._device) if about else None

    def as_numpy(self, batch: Any) -> Batch:
        """Bytes normalised, as `to_device` does it."""
        return Batch(self._placed(batch).contiguous().to("cpu", torch.float32).numpy(), batch.labels.numpy())

    def to_device(self, batch: Any) -> Batch:
        """Tensors on the device, images in the network's memory format and type."""
        images, labels = self._placed(batch), torch.as_tensor(batch.labels)
        return Batch(images.to(memory_format=self._layout), labels.to(self._device, non_blocking=True))

    def _placed(self, batch: Any) -> torch.Tensor:
        images = torch.as_tensor(batch.images)
        if images.dtype == torch.uint8:
            return self._normalise(images.to(self._device, non_blocking=True)).to(self._dtype)
        return images.to(self._device, self._dtype, non_blocking=True)

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Any) -> None:
        """The network without DDP: nothing is exchanged."""
        self._heads, self._loss = self._evaluate(self._alone, batch)

    def backward(self) -> None:
        """Autograd; DDP's hooks stay silent after a forward that was not its own."""
        self._loss.backward()
        self._loss = self._loss.detach()

    def communicate(self) -> None:
        """All-reduce of flat buckets."""
        if self._exchange is not None:
            self._exchange.average()

    def update(self) -> None:
        """The optimiser; the gradients are let go."""
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        if self._exchange is not None:
            self._exchange.forget()

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Any) -> None:
        """As its documentation teaches: DDP exchanges a bucket while the backward goes on."""
        _, loss = self._evaluate(self._parallel, batch)
        loss.backward()
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._loss = loss.detach()

    def step_alone(self, batch: Any) -> None:
        """The step under DDP's no_sync."""
        if self._no_sync is None:
            super().step_alone(batch)
        else:
            with self._no_sync():
                self.step(batch)

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """This rank's own loss."""
        return float(self._loss.detach())

    def logits(self) -> np.ndarray:
        """The last head's, of the last staged forward."""
        return to_numpy(self._heads[-1])

    def predict(self, batch: Any) -> np.ndarray:
        """With dropout off and running statistics."""
        self._net.eval()
        with torch.no_grad():
            heads = self._net(batch.images)
        self._net.train()
        return to_numpy(heads[-1])

    def gradients(self) -> Dict[str, np.ndarray]:
        """Between backward and update."""
        return {name: to_numpy(parameter.grad) for name, parameter in self._net.trainable()}

    def parameters(self) -> Dict[str, np.ndarray]:
        """With running statistics."""
        return {name: to_numpy(tensor) for name, tensor in self._net.tensors()}

    def parameter_count(self) -> int:
        """Of the module's own parameters."""
        return sum(parameter.numel() for parameter in self._net.parameters() if parameter.requires_grad)

    def macs(self) -> int:
        """Counted by torch's own FlopCounterMode, a multiply-accumulate being two of its operations."""
        sample = torch.zeros((1,) + tuple(self._shape), dtype=self._dtype, device=self._device)
        counter = FlopCounterMode(display=False)
        self._net.eval()  # the running statistics stay as they are
        with torch.no_grad(), counter:
            self._net(sample)
        self._net.train()
        return int(counter.get_total_flops()) // 2

    # --- what the measuring loop needs ----------------------------------------

    def maximum(self, value: float) -> float:
        """Over gloo, on the host."""
        return value if self._group is None else self._group.maximum(value)

    def mark(self) -> Any:
        """A CUDA event on the current stream; on a CPU the monotonic clock."""
        if self._device.type != "cuda":
            return super().mark()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed(self, begin: Any, end: Any) -> float:
        """Seconds."""
        return begin.elapsed_time(end) / 1e3 if self._device.type == "cuda" else super().elapsed(begin, end)

    def notes(self) -> Dict[str, Any]:
        """What was resolved and chosen."""
        notes: Dict[str, Any] = {
            "memory_format": str(self._layout).replace("torch.", ""),
            "compile": self._knobs["compile"],
            "lrn": "shifted additions, own backward" if self._tuned else "torch.nn.LocalResponseNorm",
            "optimiser": described(self.setup.optimiser, self._tuned),
            "reader": self._reader.words if self._reader else "none",
        }
        if self._group is not None:
            notes["ddp"] = self._ddp_options()
        return notes

    # --- inside -------------------------------------------------------------

    def _release(self) -> None:
        """Let go of what was built; DDP stands in a reference cycle."""
        self._net = self._alone = self._parallel = self._no_sync = self._exchange = self._optimiser = None
        self._loss, self._heads = None, []
        gc.collect()

    def _memory_format(self, graph: Graph) -> Any:
        asked = self._knobs["memory_format"]
        if asked == "auto":
            convolutional = any(layer.kind == "conv" for layer in graph.layers)
            asked = "channels_last" if self._tuned and convolutional else "contiguous"
        return torch.channels_last if asked == "channels_last" else torch.contiguous_format

    def _ddp_options(self) -> Dict[str, Any]:
        names = ("bucket_cap_mb", "static_graph", "gradient_as_bucket_view", "forward_sync_buffers")
        return {name: self._knobs[name] for name in names}

    def _wrap(self, parameters: List[torch.Tensor]) -> None:
        devices = [self._device] if self._device.type == "cuda" else None
        options = self._ddp_options()
        if options["bucket_cap_mb"] == "auto":
            del options["bucket_cap_mb"]  # DDP's small first bucket goes with its default alone
        if "forward_sync_buffers" not in inspect.signature(DistributedDataParallel.__init__).parameters:
            options["broadcast_buffers"] = options.pop("forward_sync_buffers")  # its name before torch 2.13
        wrapped = DistributedDataParallel(self._net, device_ids=devices, **options)
        self._no_sync = wrapped.no_sync
        # Compiled around DDP, not inside it: the compiler then splits the graph at the buckets.
        self._parallel = torch.compile(wrapped) if self._knobs["compile"] else wrapped
        if self.setup.world > 1:
            self._exchange = Exchange(parameters, self.setup.world, limits_of(wrapped))

    def _evaluate(self, network: Any, batch: Any) -> Any:
        if self.setup.precision == "bfloat16":
            with torch.autocast(self._device.type, dtype=torch.bfloat16):
                heads = network(batch.images)
        else:
            heads = network(batch.images)
        return heads, joint_loss(heads, self._shares, batch.labels)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A copy, contiguous in the canonical layout; float32, or float64 where it was computed so."""
    wanted = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to("cpu", wanted, copy=True, memory_format=torch.contiguous_format).numpy()
