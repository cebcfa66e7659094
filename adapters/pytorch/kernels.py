"""Kernels and copies on CUDA, operators on CPUs: torch's own profiler in staged iterations.

All of it is read from the trace that the profiler exports, the same that Perfetto shows: its events are the profiler's
most stable interface. A stage is a range in it, "stage forward", at whose ends the device has done all that it was
asked for. What runs on the device between its ends belongs to the stage, whichever thread has launched it (autograd's
backward is another one's). On CPUs only the outermost operators count, of the thread that runs the stages: the others
are inside of them.
"""

import json
import os
import tempfile
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, Set

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from suite.worker.contract import Unsupported
from suite.worker.kernels import PROFILED, WARMUP, Activity, Ranges, keep, summed
from suite.worker.messages import Kernels

RANGE = "stage "
ON_DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}  # categories of events, our words
# On CPUs, by the begin of their names: what torch tells as a range and not as an operator. Collectives run in a thread
# of their library's; to forget gradients gives their memory back, which takes long where they are large.
RANGES = ("gloo:", "mpi:", "Optimizer.zero_grad#")


def kernel_times(trainer: Any, iteration: Callable[[Callable[[str], Any]], None], trace: str) -> Kernels:
    """Profile, as the trainer's contract says of `kernel_times`."""
    on_cuda = trainer.setup.device == "cuda"
    written = _profiled(trainer, iteration, on_cuda)
    try:
        activities = list(read(json.loads(written.decode())["traceEvents"], on_cuda))
    except Exception as error:  # of another version's trace: the other passes are measured
        raise Unsupported("torch.profiler's trace is not understood: %s: %s" % (type(error).__name__, error)) from error
    if not activities:
        raise Unsupported(
            "torch.profiler saw nothing on the device: is CUPTI there, and may this user profile?"
            if on_cuda
            else "torch.profiler saw no operators"
        )
    kept = bool(trace) and keep(written, trace)
    profiler = "torch.profiler %s (%s)" % (torch.__version__, "CUPTI" if on_cuda else "operators on CPUs")
    return summed(activities, profiler, os.path.basename(trace) if kept else "")


def _profiled(trainer: Any, iteration: Callable[[Callable[[str], Any]], None], on_cuda: bool) -> bytes:
    """The exported trace of PROFILED iterations."""

    @contextmanager
    def within(stage: str) -> Iterator[None]:
        trainer.synchronize()
        with record_function(RANGE + stage):
            yield
            trainer.synchronize()

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_cuda
    steps = schedule(wait=0, warmup=WARMUP, active=PROFILED, repeat=1)
    # Events of all cycles are kept: there is one, and torch warns of those that it would drop.
    with profile(activities=activities, schedule=steps, acc_events=True) as profiler:
        for _ in range(WARMUP + PROFILED):
            iteration(within)
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernels.json")
        profiler.export_chrome_trace(path)
        with open(path, "rb") as stream:
            return stream.read()


def read(events: Iterable[Dict[str, Any]], on_cuda: bool) -> Iterator[Activity]:
    """Chrome's trace events as activities: what runs outside of all stages is left out."""
    timed = [each for each in events if each.get("ph") == "X"]
    stages = [each for each in timed if each.get("cat") == "user_annotation" and each["name"].startswith(RANGE)]
    ranges = Ranges((each["name"][len(RANGE) :], each["ts"], each["ts"] + each["dur"]) for each in stages)
    if on_cuda:
        found = [(each, ON_DEVICE[each["cat"]]) for each in timed if each.get("cat") in ON_DEVICE]
    else:
        found = [(each, "operator") for each in _outermost(timed, {each["tid"] for each in stages})]
    for each, kind in found:
        stage, iteration = ranges.of(each["ts"], each["ts"] + each["dur"])
        if stage:
            begin = each["ts"] - ranges.begin  # a machine that is up for long has few digits left behind the seconds
            yield Activity(stage, iteration, each["name"], kind, 1e-6 * begin, 1e-6 * (begin + each["dur"]))


def _outermost(timed: Iterable[Dict[str, Any]], threads: Set[Any]) -> Iterator[Dict[str, Any]]:
    """The operators that no other one has called, and RANGES."""
    operators = [each for each in timed if each.get("cat") == "cpu_op" and each["tid"] in threads]
    end = float("-inf")
    for each in sorted(operators, key=lambda each: (each["ts"], -each["dur"])):
        if each["ts"] >= end:
            end = each["ts"] + each["dur"]
            yield each
    yield from (each for each in timed if each["name"].startswith(RANGES))
