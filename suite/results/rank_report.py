"""What a rank reports, from its first message to its end, as a record keeps it.

Times are seconds. Lists hold an item a step, in order. null is what was not measured, not reported, or no number.
"""

import contextlib
import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator

from suite.results.stored import Finite, Stored


class GpuSettings(Stored):
    """What somebody may set on a GPU; None is what it does not have, or tell."""

    most_sm_clock_hz: float | None = None
    power_limit_watts: float | None = None
    persistence: bool | None = None  # whether the driver stays loaded while nobody uses it
    ecc: bool | None = None  # whether its memory corrects errors


class Machine(Stored):
    """What a host is; it may hide any of it."""

    cpu: str | None = None  # the model
    memory_bytes: int | None = None
    kernel: str | None = None
    governor: str | None = None  # of the first core's clock
    os: str | None = None
    gpus: tuple[str, ...] = ()
    gpu_driver: str | None = None
    sockets: int | None = None  # processors
    gpu_links: tuple[str, ...] = ()  # of every graphics device on PCI: "8.0 GT/s PCIe x16"
    networks: tuple[str, ...] = ()  # interfaces that are up: "eth0, 10000 Mbit/s", less the speed where unknown
    cpu_quota: float | None = None  # cores' worth of time that its control groups allow; None: no limit
    gpu_settings: tuple[GpuSettings, ...] = ()  # of each of `gpus`; empty, too, before they were kept


GPU = re.compile(r"GPU \d+: (.*) \(UUID: (.*)\)")  # as nvidia-smi lists one


def models(cpu: str | None, gpus: Iterable[str], device: str) -> set[str]:
    """What computes on a host: the model of its CPU, and those of its GPUs where the device is one."""
    named = {found[1] if (found := GPU.fullmatch(gpu)) else gpu for gpu in gpus} if device != "cpu" else set()
    return {cpu or "unknown", *named}


class Arithmetic(Stored):
    """The variables that change what a rank computes, as it found them when it began."""

    names: tuple[str, ...]  # their values are among its settings
    digest: str  # of the values, home folders and all


class Hello(Stored):
    """A rank's process, before anything of the framework was imported."""

    host: str  # its name
    machine: Machine | None = None  # None: format 1
    world: int | None = None
    pid: int | None = None
    python: str | None = None
    numpy: str | None = None
    cores: tuple[int, ...] = ()  # that this rank may use
    core_of: tuple[int, ...] = ()  # the physical core under each, by the lowest CPU on it; empty: format 3 and before
    host_cores: int | None = None
    boot: str = ""  # tells the running kernel from every other
    threads: dict[str, str] = {}  # the variables that say how many threads a library runs
    settings: dict[str, str] | None = None  # those that libraries read; None: format 1, early
    arithmetic: Arithmetic | None = None  # which of these change what is computed; None: before they were told apart


class Joined(Stored):
    """What the engine connected."""

    rank: int
    world: int
    devices: int | None = None  # of this rank
    transport: str = ""
    versions: dict[str, str] = {}
    settings: dict[str, str] | None = None  # as of Hello, after joining
    device_ids: tuple[str, ...] = ()  # UUIDs of the GPUs that it drives


class Failed(Stored):
    """A rank's own account of its end."""

    kind: str
    message: str
    traceback: str = ""


class Pass(Stored):
    """One pass on one rank."""

    name: str
    samples: int  # that this rank consumed in all measured steps
    steady: bool  # whether no trend was left in the warm-up when measuring began
    warmup_s: tuple[float, ...]
    step_s: tuple[float, ...]
    wall_s: float  # from the common barrier until this rank's last step is done
    io_s: tuple[float, ...] | None = None  # the wait for each batch
    stage_s: dict[str, tuple[float, ...]] | None = None  # by stage; "staged" only
    loss: Finite = None  # the last step's; None: not a finite number, or a pass that has none (LOSSES)
    # Of a pass that takes turns with native steps, (native, its own) seconds per step of every pair of blocks.
    pairs_s: tuple[tuple[float, float], ...] | None = None
    gradient_bytes: int | None = None  # of "native": what each device exchanges in a step, in the mean
    # Of "staged": begin and end of the measured steps on the common clock, which is rank 0's; None: not recorded.
    span_s: tuple[float, float] | None = None
    clock_error_s: float | None = None  # bound on that clock's error
    set_aside_s: tuple[float, ...] | None = None  # of "native": steps that do not count, since others used the host


LOSSES = ("native", "staged", "compute_only")  # the passes that have one


class GpuUse(Stored):
    """What one GPU did meanwhile, by NVML, whoever used it; None is what this card or its driver does not tell."""

    uuid: str
    busy_share: float | None = None  # of the time, when a kernel ran; the mean of samples
    memory_bytes: int | None = None  # in use at most, with what the driver keeps to itself
    watts: float | None = None  # the mean
    most_watts: float | None = None
    sm_clock_hz: float | None = None  # of its multiprocessors, the mean
    least_sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None  # the mean
    least_memory_clock_hz: float | None = None
    celsius: int | None = None  # at most
    throttled_by: tuple[str, ...] | None = None  # what held its clocks down at any time
    joules: float | None = None  # by its own counter


class HostUse(Stored):
    """What the system counted on a rank's host during the measured steps of a pass, and what its GPUs did."""

    seconds: float
    involuntary_switches: int  # of the rank's process, by the kernel
    busy_cpu_s: float  # of everybody, on all cores
    steal_cpu_s: float  # that a hypervisor gave to other guests
    cores: int  # of the host
    own_cpu_s: float | None = None  # of this measurement's ranks, readers, servers; None: nothing tells them apart
    clock_hz: float | None = None  # of the rank's cores, the mean right after the last step
    cpu_joules: float | None = None  # of the host's processors and their memory; None: not readable, or format 3
    gpu_joules: float | None = None  # of the GPUs that the rank drives; without `gpus` of all of the host's; likewise
    # Before `gpus` was kept: of the host's GPU that ran fastest, right after the last step.
    gpu_clock_hz: float | None = None
    gpus: tuple[GpuUse, ...] = ()  # that the rank drives; empty on a CPU, where nobody could tell, and before


class Noise(Stored):
    """How quiet the machine was: a fixed computation, the same everywhere, before the first pass and after the last."""

    reference_before_s: tuple[float, ...]
    reference_after_s: tuple[float, ...]
    native: HostUse | None = None  # None: no native pass, or a system that does not count
    train: HostUse | None = None  # of the pass `train`: all of its epochs, and the tests between them
    comm: HostUse | None = None  # of communication by itself: all of it


class Memory(Stored):
    """The most that a rank held at a time, from its start to the end of what it was asked to do."""

    host_bytes: int  # resident, of the process itself
    device_bytes: int | None = None  # that the framework allocated on its devices; None: it does not say


class Peaks(Stored):
    """What a rank's devices can do at most, measured while all ranks of its host do the same."""

    flop_per_s: float  # of a matrix product, in the precision of the training
    bytes_per_s: float  # of a copy, read and written
    library: str  # that did both


class Layer(Stored):
    """Where one layer's time went: medians over several iterations."""

    layer: str
    kind: str
    forward_s: float
    backward_s: float
    communication_s: float
    bytes: int  # of its gradients
    ready_s: float | None = None  # after the backward's begin; None: nobody can say, or format 3 and before


class Kernel(Stored):
    """What one of the framework's kernels took within one stage, all of its calls in an iteration."""

    stage: str
    name: str  # as the framework's profiler has it; "others": the sum of those that have no row
    kind: str  # "kernel", "memcpy", "memset"; "operator" on CPUs, the outermost alone
    calls: float  # the mean
    seconds: float  # the median


class Kernels(Stored):
    """The pass `kernels`: what the framework's own profiler saw in a few staged iterations."""

    stages: dict[str, float]  # seconds of an iteration in which any kernel ran, overlaps once; medians
    rows: tuple[Kernel, ...]  # the longest first
    profiler: str  # "torch.profiler 2.13.0 (CUPTI)"
    trace: str = ""  # the file with all of it in the attempt's folder; "": not kept


class Epoch(Stored):
    """One epoch on one rank."""

    train_s: float  # training alone
    test_s: float | None = None
    samples: int
    steps: int | None = None
    accuracy: float  # on what was held out
    loss: Finite  # the last step's


class Training(Stored):
    """The pass `train` on one rank."""

    epochs: tuple[Epoch, ...]
    loss_steps: tuple[int, ...]  # the steps whose losses were kept
    losses: tuple[Finite, ...]
    loss_s: tuple[float, ...] = ()  # when: seconds of training; () where not kept
    open_s: float | None = None  # to open the input, before the first epoch; None: not kept


class Traffic(Stored):
    """What an interface of a rank's host carried while it ran."""

    received_bytes: int
    sent_bytes: int


def _end(value: str) -> str:
    address, _, port = value[:100].rpartition(":")
    with contextlib.suppress(ValueError):
        found, number = ipaddress.ip_address(address.strip("[]")), int(port)
        shown = f"[{found}]" if found.version == 6 else str(found)
        if "%" not in shown and 0 <= number < 1 << 16 and value == f"{shown}:{number}":
            return value
    raise ValueError(f"{value[:50]!r} is no address and port")


End = Annotated[str, AfterValidator(_end)]


class Connection(Stored):
    """A TCP connection that a rank had open at the end of its task, both ends as "address:port"."""

    own: End
    other: End


class AnyRank(Stored):
    """What every rank reports, whatever it was asked to do."""

    rank: int
    hello: Hello | None = None
    joined: Joined | None = None
    wire: dict[str, Traffic] | None = None  # by interface
    connections: tuple[Connection, ...] = ()  # of its own process; () where it could not tell, and before
    noise: Noise | None = None  # None: format 2 and before; so is the next one. Of communication: before it was kept
    memory: Memory | None = None
    failed: Failed | None = None


class Rank(AnyRank):
    """What a rank of a training reports."""

    passes: dict[str, Pass] = {}
    peaks: Peaks | None = None  # measured in a case's first process; None: format 3 and before
    layers: tuple[Layer, ...] | None = None
    kernels: Kernels | None = None
    training: Training | None = None
    notes: dict[str, Any] = {}  # the trainer's own words
