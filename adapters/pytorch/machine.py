"""Threads, devices, the way of batches to them, and versions."""

import os
import re
import shutil
import sysconfig
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from adapters.pytorch.precision import multiplied
from suite.worker.contract import Setup, Unavailable, chosen
from suite.worker.gpus import no_cuda, own_devices
from suite.worker.peaks import Yardstick
from suite.worker.trainer import Trainer

PLACES = 2  # of a batch on a GPU: one that a step computes with, one that is filled during the step


class DeviceTrainer(Trainer):
    """A trainer's device: waiting for it, points in its time, what it can do at most."""

    def open_device(self, compiled: bool = False) -> None:
        """Set threads and device, for `start`; Unavailable says what this machine lacks."""
        self._device = prepare(self.setup, compiled)
        self._on_cuda = self._device.type == "cuda"

    def synchronize(self) -> None:
        if self._on_cuda:
            torch.cuda.synchronize()

    def mark(self) -> Any:
        """Return a CUDA event on the current stream; on a CPU the monotonic clock."""
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def has_device_marks(self) -> bool:
        return self._on_cuda

    def elapsed(self, begin: Any, end: Any) -> float:
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
            compiler()
        return device
    if compiled and not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        raise Unavailable("torch.compile on a CPU needs a C++ compiler and there is none; install g++ or set CXX")
    torch.backends.mkldnn.enabled = setup.knobs.get("onednn") != "off"
    return torch.device("cpu")


def compiler() -> None:
    """Unavailable where Triton, which compiles for GPUs, cannot compile in C what starts its kernels."""
    wants = "torch.compile on a GPU compiles its kernels' launchers in C and needs "
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        raise Unavailable(wants + "a C compiler: there is none; install gcc or set CC")
    header = os.path.join(sysconfig.get_config_var("INCLUDEPY") or "", "Python.h")
    if not os.path.isfile(header):
        raise Unavailable(wants + "Python's header: there is no %s; install python3-dev or its like" % header)


def cuda(setup: Setup) -> torch.device:
    if not torch.cuda.is_available():
        if torch.version.cuda:
            built, remedy = "for CUDA %s" % torch.version.cuda, "see whether nvidia-smi lists a device and its driver"
        else:
            built, remedy = "without CUDA", "install a PyTorch that is built with it"
        raise no_cuda("PyTorch %s is built %s" % (torch.__version__, built), remedy)
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
    """Their numbers."""
    return own_devices(setup, torch.cuda.device_count())


def yardstick(setup: Setup) -> Yardstick:
    devices = [torch.device("cpu")]
    if setup.device == "cuda":
        devices = [torch.device("cuda", number) for number in own_gpus(setup)]
    dtype = multiplied(setup.precision)

    def product(side: int) -> Callable[[], Any]:
        matrices = [torch.rand(side, side, device=device).to(dtype) for device in devices]
        return lambda: [torch.mm(matrix, matrix) for matrix in matrices]

    def copy(size: int) -> Callable[[], Any]:
        pairs = [[torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2)] for device in devices]
        return lambda: [there.copy_(here) for there, here in pairs]

    return Yardstick("torch " + str(torch.__version__), product, copy)


def versions(device: str) -> Dict[str, str]:
    found = {"torch": str(torch.__version__)}  # a subclass of str until then
    patterns = {"onednn": r"MKL-DNN v([\d.]+)", "mkl": r"Math Kernel Library Version (\S+)", "openmp": r"OpenMP (\S+)"}
    text = torch.__config__.show()
    for name, pattern in patterns.items():
        match = re.search(pattern, text)
        if match:
            found[name] = match.group(1)
    if device == "cuda":
        found.update(cuda=str(torch.version.cuda), cudnn=str(torch.backends.cudnn.version()))
        found.update(nccl=".".join(map(str, torch.cuda.nccl.version())), gpu=torch.cuda.get_device_name())
    else:
        found["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    return found


class Copies:
    """Copies of batches to a GPU while it computes: a stream of their own, and two places that take turns.

    A copy that is queued behind a step waits for it, though the copy engine is idle. On a stream of its own it begins
    at once; a place is written again only when the step that had it is done, so a host that runs ahead fills no memory.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._places: Dict[Any, List[torch.Tensor]] = {}
        self._read: List[Any] = [None] * PLACES  # by place: an event, reached when no step reads it any more
        self._batches = 0

    def batch(self, *hosts: torch.Tensor) -> Sequence[torch.Tensor]:
        """Its tensors on the device, for what is queued next: a later batch will lie in the same memory."""
        computing, place = torch.cuda.current_stream(self._device), self._batches % PLACES
        self._read[place - 1] = computing.record_event()  # what is queued so far reads the batch before, no later one
        if self._read[place] is not None:
            self._stream.wait_event(self._read[place])
        there = [self._room(number, host)[place] for number, host in enumerate(hosts)]
        with torch.cuda.stream(self._stream):
            for room, host in zip(there, hosts):
                room.copy_(host, non_blocking=True)
        computing.wait_stream(self._stream)
        self._batches += 1
        return there

    def _room(self, number: int, host: torch.Tensor) -> List[torch.Tensor]:
        key = (number, host.dtype, tuple(host.shape))
        if key not in self._places:
            self._places[key] = [torch.empty_like(host, device=self._device) for _ in range(PLACES)]
            # The memory may still be in use on the computing stream, for which it was given out.
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return self._places[key]
