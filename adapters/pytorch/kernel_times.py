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
from typing import Any, Dict, Iterable, Iterator

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.kernels import PROFILED, WARMUP, Activity, Ranges, keep, summed
from stagebench.suite.worker.messages import Kernels
from stagebench.suite.worker.trainer import Iteration, Trainer

Event = Dict[str, Any]  # of a Chrome trace: "name", "cat", "ph", "tid", "ts" and "dur" in microseconds

RANGE = "stage "
ON_DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}  # categories of events, our words
# On CPUs, by the begin of their names: what torch tells as a range and not as an operator. Collectives run in a thread
# of their library's; to forget gradients gives their memory back, which takes long where they are large.
RANGES = ("gloo:", "mpi:", "Optimizer.zero_grad#")


def kernel_times(trainer: Trainer, iteration: Iteration, trace: str) -> Kernels:
    """Profile, as the trainer's contract says of `kernel_times`."""

    @contextmanager
    def within(stage: str) -> Iterator[None]:
        trainer.synchronize()
        with record_function(RANGE + stage):
            yield
            trainer.synchronize()

    on_cuda = trainer.setup.device == "cuda"
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
            written = stream.read()
    try:
        found = list(read(json.loads(written.decode())["traceEvents"], on_cuda))
    except Exception as error:  # of another version's trace: the other passes are measured
        raise Unsupported(f"torch.profiler's trace is not understood: {type(error).__name__}: {error}") from error
    if not found:
        raise Unsupported(
            "torch.profiler saw nothing on the device: is CUPTI there, and may this user profile?"
            if on_cuda
            else "torch.profiler saw no operators"
        )
    kept = bool(trace) and keep(written, trace)
    words = f"torch.profiler {torch.__version__} ({'CUPTI' if on_cuda else 'operators on CPUs'})"
    return summed(found, words, os.path.basename(trace) if kept else "")


def read(events: Iterable[Event], on_cuda: bool) -> Iterator[Activity]:
    """Yield a trace's events as activities, without those outside of all stages."""
    timed = [event for event in events if event.get("ph") == "X"]
    stages = [event for event in timed if event.get("cat") == "user_annotation" and event["name"].startswith(RANGE)]
    ranges = Ranges((event["name"][len(RANGE) :], event["ts"], event["ts"] + event["dur"]) for event in stages)
    if on_cuda:
        counted = [event for event in timed if event.get("cat") in ON_DEVICE]
    else:
        threads = {event["tid"] for event in stages}
        operators = [event for event in timed if event.get("cat") == "cpu_op" and event["tid"] in threads]
        counted = []
        last = float("-inf")
        for event in sorted(operators, key=lambda event: (event["ts"], -event["dur"])):
            if event["ts"] >= last:  # no other operator has called it
                last = event["ts"] + event["dur"]
                counted.append(event)
        counted += [event for event in timed if event["name"].startswith(RANGES)]
    for event in counted:
        kind = ON_DEVICE[event["cat"]] if on_cuda else "operator"
        stage, iteration = ranges.of(event["ts"], event["ts"] + event["dur"])
        if stage:
            begin = event["ts"] - ranges.begin  # a machine that is up for long has few digits left behind the seconds
            yield Activity(stage, iteration, event["name"], kind, 1e-6 * begin, 1e-6 * (begin + event["dur"]))
