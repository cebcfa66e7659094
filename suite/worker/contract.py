"""The worker side's contract: the types of a trainer's arguments and results, and what every trainer does alike."""

import hashlib
import math
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Union

Call = Callable[[], Any]  # a piece of work


class Batch(NamedTuple):
    """Samples; an adapter's own next_batch may return anything else that its own to_device takes."""

    inputs: Any  # float32, normalised, (samples, channels, height, width); or tokens: int64, (samples, positions)
    labels: Any  # int64, (samples,), or (samples, positions) if each token has one


class SGD(NamedTuple):
    """v <- momentum*v + g + weight_decay*w, w <- w - lr*v."""

    lr: float
    momentum: float
    weight_decay: float
    decays: str = "all"  # `Graph.decay`: the tensors that weight decay shrinks, "all" or "matrices"
    # g is multiplied by min(1, clip / ‖all gradients‖) first, once they are averaged (Pascanu 2013); 0: it is not.
    clip: float = 0.0


class Adam(NamedTuple):
    """The update of Kingma and Ba 2014, in the efficient order of its section 2, as Keras, MXNet and CNTK compute it.

    g <- g + wd*w, m <- b1*m + (1 - b1)*g, v <- b2*v + (1 - b2)*g*g,
    w <- w - lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon), t counting updates from 1.

    A `decoupled` decay is AdamW's (Loshchilov and Hutter 2017): g stays as it is, and w <- w - lr*wd*w comes first.
    """

    lr: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    decoupled: bool = False
    decays: str = "all"  # as SGD's
    clip: float = 0.0  # as SGD's

    def rate(self, update: int) -> float:
        """Return the factor before m / (sqrt(v) + epsilon) at an update, counted from 1."""
        return self.lr * math.sqrt(1.0 - self.beta2**update) / (1.0 - self.beta1**update)


Optimiser = Union[SGD, Adam]


def decay_of(rule: Optimiser, shape: Sequence[int]) -> float:
    """Return the weight decay of a tensor by its shape, which may have more axes of 1 than the canonical one."""
    matrix = sum(extent > 1 for extent in shape) > 1
    return rule.weight_decay if matrix or rule.decays == "all" else 0.0


class Setup(NamedTuple):
    """The settings of a trainer, checked already."""

    rank: int  # as the launcher's environment says; `start` reports what the engine says
    world: int
    local_rank: int
    strategy: str
    device: str  # "cpu" or "cuda"
    threads: int  # per device
    batch: int  # samples of the network that this rank trains, all its devices together
    precision: str  # "float32", ...
    tuning: str  # "default": what an ordinary user writes; "tuned": all that an expert knows
    knobs: Dict[str, Any]  # the adapter's own, already checked by its plugin
    optimiser: Optimiser
    seed: int
    readers: int  # processes or threads that decode; 0: in the training process
    prefetch: int = 2  # batches read ahead, per reader
    devices: int = 1  # that this rank drives; the batch is split evenly, in the devices' order
    model_parallel_size: int = 1  # ranks in a row that hold one network together; all are given the same batch
    changing_rate: bool = False  # `Trainer.set_learning_rate` will be called between steps
    share_devices: bool = False  # whether ranks of a host may drive the same GPU
    # As `batch`, of the case whose kernels are chosen by timing: in a proof, the measured case's; 0: `batch` itself.
    tuned_batch: int = 0

    @property
    def tuned(self) -> bool:
        """True if the trainer uses all that an expert knows."""
        return self.tuning == "tuned"

    @property
    def replica(self) -> int:
        """The number of the network that this rank holds, or holds a part of."""
        return self.rank // self.model_parallel_size

    @property
    def replicas(self) -> int:
        """The number of networks that are trained side by side; each has a batch of its own."""
        return self.world // self.model_parallel_size


class Joined(NamedTuple):
    """The state of this process after the engine has connected it."""

    rank: int
    world: int  # ranks that the engine really connected
    transport: str  # "none", "gloo", "nccl", "mpi: Open MPI 5.0.11", ...
    versions: Dict[str, str]  # framework and the libraries that decide its speed
    devices: int = 1  # that this rank really drives


class Group(ABC):
    """The ranks that `start` has joined, as one of them sees them: the `group` of a trainer or a communicator."""

    @abstractmethod
    def maximum(self, value: float) -> float:
        """Return the largest value over all ranks; also a barrier."""

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self.maximum(0.0)

    @abstractmethod
    def close(self) -> None:
        """Leave, all ranks together."""


class LayerTimes(NamedTuple):
    """The times of one layer: medians over several iterations (see `stagebench.suite.worker.layers`)."""

    layer: str
    kind: str
    forward_s: float
    backward_s: float
    communication_s: float  # its share of the exchange; 0.0 if gradients are not exchanged layer by layer
    bytes: int  # of its gradients
    ready_s: Optional[float] = None  # from the start of the backward until its gradient is complete; None: unknown


class KernelTimes(NamedTuple):
    """The time of one of the framework's kernels in one stage, all calls (see `stagebench.suite.worker.kernels`)."""

    stage: str
    name: str  # as the framework's profiler has it
    kind: str  # "kernel", "memcpy", "memset"; "operator" on CPUs, the outermost alone
    calls: float  # in an iteration, the mean
    seconds: float  # in an iteration, the median


class Unsupported(Exception):
    """A request that a trainer cannot fulfil; the reason becomes the row's."""


class Unavailable(Exception):
    """A requirement that this machine does not meet, with the remedy; the same case may run on another, or later."""


AUTO = "auto"
_SAME = object()


def chosen(setup: Setup, knob: str, default: Any, tuned: Any = _SAME) -> Any:
    """Return the knob's value in the plan; if it is "auto" or not named, `default`, or `tuned` of a tuned run.

    `memory_format = chosen(setup, "memory_format", default="contiguous", tuned="channels_last")`
    """
    value = setup.knobs.get(knob, AUTO)
    if value != AUTO:
        return value
    return default if tuned is _SAME or not setup.tuned else tuned


def dropout_seed(seed: int, device: int, layer: str = "") -> int:
    """Return a seed for one device's masks, below 2**31: every framework takes it.

    `seed` is the setup's, `device` the device's number over all ranks (`rank * devices + index`): each device has masks
    of its own, the same again after every `build`. `layer` is named if the framework needs a seed for each layer. A
    framework whose generator has no state adds the step's number.
    """
    words = f"{seed}/{device}/{layer}"
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big") >> 1
