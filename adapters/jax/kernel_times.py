"""XLA's profile of staged iterations: kernels and copies on CUDA, the operations of its programs on CPUs.

JAX reads the profile itself (`jax.profiler.ProfileData`). A stage is a range in it, "stage forward", at whose ends the
devices have no work left. On CPUs an operation names itself as one of a program (`hlo_op`),
whichever thread runs it; operations within a loop or a call lie inside its time. Python is not traced, which would be
slow.
"""

import glob
import gzip
import os
import tempfile
from contextlib import contextmanager
from typing import Any, Iterable, Iterator, List, NamedTuple, Tuple

import jax

from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.kernels import PROFILED, WARMUP, Activity, Ranges, keep, summed
from stagebench.suite.worker.messages import Kernels
from stagebench.suite.worker.trainer import Iteration, Trainer

RANGE = "stage "
HOST, DEVICE, STREAM = "/host:CPU", "/device:GPU", "Stream"  # prefixes of the names of planes, and of a device's lines
COPIES = ("memcpy", "memset")  # prefixes of the names of other activities than kernels, in small letters


class Call(NamedTuple):
    """A call of a kernel or an operation, in nanoseconds."""

    name: str
    kind: str
    begin: float
    end: float


def kernel_times(trainer: Trainer, iteration: Iteration, trace: str) -> Kernels:
    """Implement `Trainer.kernel_times`."""
    if not hasattr(jax.profiler, "ProfileData"):
        raise Unsupported(f"JAX {jax.__version__} does not read its own profiles")

    @contextmanager
    def within(stage: str) -> Iterator[None]:
        trainer.synchronize()
        with jax.profiler.TraceAnnotation(RANGE + stage):
            yield
            trainer.synchronize()

    on_cuda = trainer.setup.device == "cuda"
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(WARMUP):
            iteration(within)
        with jax.profiler.trace(folder, profiler_options=options):
            for _ in range(PROFILED):
                iteration(within)
        try:
            # One process has profiled: there is one.
            (path,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
            activities = list(read(jax.profiler.ProfileData.from_file(path).planes, on_cuda))
        except Exception as error:  # of another version's profile: the other passes are measured
            raise Unsupported(f"JAX's profile is not understood: {type(error).__name__}: {error}") from error
        if not activities:
            raise Unsupported(
                "JAX's profiler saw nothing in the stages; on a GPU it needs CUPTI, and the right to use it"
            )
        kept = False
        traces = os.path.join(folder, "**", "*.trace.json.gz")
        for path in glob.glob(traces, recursive=True) if trace else ():
            with gzip.open(path) as stream:
                kept = keep(stream.read(), trace)
    profiler = f"jax.profiler {jax.__version__} ({'CUPTI' if on_cuda else 'operations on CPUs'})"
    return summed(activities, profiler, os.path.basename(trace) if kept else "")


def read(planes: Iterable[Any], on_cuda: bool) -> Iterator[Activity]:
    """Return a profile's activities, without those outside of all stages."""
    stages: List[Tuple[str, float, float]] = []
    calls: List[Call] = []
    lines = [(plane.name, line) for plane in planes for line in plane.lines]
    for plane, line in lines:
        if plane.startswith(HOST):
            for event in line.events:
                if event.name.startswith(RANGE):
                    stages.append((event.name[len(RANGE) :], event.start_ns, event.start_ns + event.duration_ns))
            if not on_cuda:
                operations = [event for event in line.events if "hlo_op" in dict(event.stats)]
                calls += outermost([called_of(event, "operator") for event in operations])
        elif on_cuda and plane.startswith(DEVICE) and line.name.startswith(STREAM):
            for event in line.events:
                copies = [prefix for prefix in COPIES if event.name.lower().startswith(prefix)]
                calls.append(called_of(event, copies[0] if copies else "kernel"))
    return located(calls, Ranges(stages))


def located(calls: Iterable[Call], ranges: Ranges) -> Iterator[Activity]:
    """Yield the calls as activities of the stages in which they ran."""
    for call in calls:
        stage, iteration = ranges.of(call.begin, call.end)
        if stage:
            begin = 1e-9 * (call.begin - ranges.begin)
            yield Activity(stage, iteration, call.name, call.kind, begin, 1e-9 * (call.end - ranges.begin))


def called_of(event: Any, kind: str) -> Call:
    return Call(event.name, kind, event.start_ns, event.start_ns + event.duration_ns)


def outermost(calls: List[Call]) -> Iterator[Call]:
    """Yield a thread's calls that no other one has made."""
    last = float("-inf")
    for call in sorted(calls, key=lambda call: (call.begin, -call.end)):
        if call.begin >= last:
            last = call.end
            yield call
