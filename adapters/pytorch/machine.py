"""Threads, devices, types of numbers, the way of batches to devices, and versions."""

import os
import re
import shutil
import sysconfig
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from torch import Tensor

from stagebench.suite.worker.contract import Setup, Unavailable, chosen
from stagebench.suite.worker.gpus import no_cuda, own_devices
from stagebench.suite.worker.member import Member
from stagebench.suite.worker.peaks import Yardstick

Mark = Any  # a torch.cuda.Event; on a CPU seconds

PLACES = 2  # of a batch on a GPU: one that a step computes with, one that is filled during the step

# The narrow type that autocast computes convolutions and products in; parameters and gradients stay float32.
MIXED = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# The scale of losses. torch begins with 65536, with which small batches' gradients overflow: first steps train nothing.
FIRST_SCALE = 1024.0


def stored(precision: str) -> torch.dtype:
    """Return the type of parameters, gradients and images."""
    return torch.float64 if precision == "float64" else torch.float32


def multiplied(precision: str) -> torch.dtype:
    """Return the type of what convolutions and products take; TF32 is float32 that the hardware rounds."""
    return MIXED.get(precision, stored(precision))


class OnDevice(Member):
    """A rank's device: waiting for it, points in its time, what it can do at most."""

    def open_device(self, compiled: bool = False) -> None:
        """Set threads and device, for `start`; Unavailable says what this machine lacks."""
        self._device = prepare(self.setup, compiled)
        self._on_cuda = self._device.type == "cuda"

    def synchronize(self) -> None:
        if self._on_cuda:
            torch.cuda.synchronize()

    def mark(self) -> Mark:
        """Return an event on the current stream; on a CPU the monotonic clock."""
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def has_device_marks(self) -> bool:
        return self._on_cuda

    def elapsed(self, begin: Mark, end: Mark) -> float:
        return float(begin.elapsed_time(end)) / 1e3 if self._on_cuda else super().elapsed(begin, end)

    def peak_device_bytes(self) -> Optional[int]:
        if not self._on_cuda:
            return None
        return sum(torch.cuda.max_memory_allocated(number) for number in own_gpus(self.setup))

    def yardstick(self) -> Optional[Yardstick]:
        return super().yardstick() or yardstick(self.setup)


def prepare(setup: Setup, compiled: bool = False) -> torch.device:
    """Set threads and device; Unavailable says what this machine lacks."""
    torch.set_num_threads(setup.threads)
    if torch.get_num_interop_threads() != 1:
        # One network runs, one operation after the other: more would only sit on cores. Can be set once.
        torch.set_num_interop_threads(1)
    if setup.device == "cuda":
        device = cuda(setup)
        if compiled:
            # Triton compiles in C what starts its kernels.
            wants = "torch.compile on a GPU compiles its kernels' launchers in C and needs "
            if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
                raise Unavailable(f"{wants}a C compiler: there is none; install gcc or set CC")
            header = os.path.join(sysconfig.get_config_var("INCLUDEPY") or "", "Python.h")
            if not os.path.isfile(header):
                raise Unavailable(wants + f"Python's header: there is no {header}; install python3-dev or its like")
        return device
    if compiled and not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        raise Unavailable("torch.compile on a CPU needs a C++ compiler and there is none; install g++ or set CXX")
    torch.backends.mkldnn.enabled = setup.knobs.get("onednn") != "off"
    return torch.device("cpu")


def cuda(setup: Setup) -> torch.device:
    if not torch.cuda.is_available():
        if torch.version.cuda:
            built = f"for CUDA {torch.version.cuda}"
            remedy = "see whether nvidia-smi lists a device and its driver"
        else:
            built = "without CUDA"
            remedy = "make its environment anew, by stagebench env make, with --gpu"
        raise no_cuda(f"PyTorch {torch.__version__} is built {built}", remedy)
    own = own_gpus(setup)
    torch.cuda.set_device(own[0])
    # TF32 rounds what is multiplied to 11 bits: it is not what a record calls float32.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = setup.precision == "tf32"
    alike = setup.knobs.get("deterministic") == "on"
    torch.use_deterministic_algorithms(alike)
    torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads memory before it is written
    # What is timed anew in every run may choose another algorithm in each.
    tuned = "off" if alike else "on"
    torch.backends.cudnn.benchmark = chosen(setup, "cudnn_autotune", default="off", tuned=tuned) == "on"
    return torch.device("cuda", own[0])


def own_gpus(setup: Setup) -> List[int]:
    """Return the numbers of this rank's GPUs."""
    return own_devices(setup, torch.cuda.device_count())


def yardstick(setup: Setup) -> Yardstick:
    devices = [torch.device("cpu")]
    if setup.device == "cuda":
        devices = [torch.device("cuda", number) for number in own_gpus(setup)]
    dtype = multiplied(setup.precision)

    def product(side: int) -> Callable[[], List[Tensor]]:
        matrices = [torch.rand(side, side, device=device).to(dtype) for device in devices]
        return lambda: [torch.mm(matrix, matrix) for matrix in matrices]

    def copy(size: int) -> Callable[[], List[Tensor]]:
        pairs = [[torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2)] for device in devices]
        return lambda: [there.copy_(here) for there, here in pairs]

    return Yardstick(f"torch {torch.__version__!s}", product, copy)


def versions(device: str) -> Dict[str, str]:
    found = {"torch": str(torch.__version__)}  # a subclass of str until then
    patterns = {"onednn": r"MKL-DNN v([\d.]+)", "mkl": r"Math Kernel Library Version (\S+)", "openmp": r"OpenMP (\S+)"}
    for name, pattern in patterns.items():
        match = re.search(pattern, torch.__config__.show())
        if match:
            found[name] = match.group(1)
    if device == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["gpu"] = torch.cuda.get_device_name()
    else:
        found["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    return found


class Copies:
    """Copies of batches to a GPU while it computes: a stream of their own, and two places that take turns.

    A copy that is queued behind a step waits for it, though the copy engine is idle. On a stream of its own it begins
    at once; a place is written again only when the step that had it is done, so a host that runs ahead fills no memory.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._places: Dict[Any, List[Tensor]] = {}  # by a tensor's number, type and shape
        self._read: List[Any] = [None] * PLACES  # by place: an event, reached when no step reads it any more
        self._batches = 0

    def batch(self, *hosts: Tensor) -> Sequence[Tensor]:
        """Return its tensors on the device, for what is queued next: a later batch will lie in the same memory."""
        computing = torch.cuda.current_stream(self._device)
        place = self._batches % PLACES
        self._read[place - 1] = computing.record_event()  # what is queued so far reads the batch before, no later one
        if self._read[place] is not None:
            self._stream.wait_event(self._read[place])
        there = []
        for number, host in enumerate(hosts):
            key = (number, host.dtype, tuple(host.shape))
            if key not in self._places:
                self._places[key] = [torch.empty_like(host, device=self._device) for _ in range(PLACES)]
                # The memory may still be in use on the computing stream, for which it was given out.
                self._stream.wait_stream(computing)
            there.append(self._places[key][place])
        with torch.cuda.stream(self._stream):
            for room, host in zip(there, hosts):
                room.copy_(host, non_blocking=True)
        computing.wait_stream(self._stream)
        self._batches += 1
        return there
