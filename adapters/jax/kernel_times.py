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
from typing import Any, Callable, Iterable, Iterator, List, Tuple

import jax

from suite.worker.contract import Unsupported
from suite.worker.kernels import PROFILED, WARMUP, Activity, Ranges, keep, summed
from suite.worker.messages import Kernels

RANGE = "stage "
HOST, DEVICE, STREAM = "/host:CPU", "/device:GPU", "Stream"  # prefixes of the names of planes, and of a device's lines
COPIES = (
    ("memcpy", "memcpy"),
    ("memset", "memset"),
)  # prefixes of names of other activities than kernels, in small letters

Call = Tuple[str, str, float, float]  # name, kind, begin and end in nanoseconds


def kernel_times(trainer: Any, iteration: Callable[[Callable[[str], Any]], None], trace: str) -> Kernels:
    """Implement `Trainer.kernel_times`."""
    if not hasattr(jax.profiler, "ProfileData"):
        raise Unsupported("JAX %s does not read its own profiles" % jax.__version__)
    on_cuda = trainer.setup.device == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        _profile(trainer, iteration, folder)
        try:
            (path,) = _written(folder, "*.xplane.pb")
            activities = list(read(jax.profiler.ProfileData.from_file(path).planes, on_cuda))
        except Exception as error:  # of another version's profile: the other passes are measured
            raise Unsupported("JAX's profile is not understood: %s: %s" % (type(error).__name__, error)) from error
        if not activities:
            raise Unsupported(
                "JAX's profiler saw nothing in the stages; on a GPU it needs CUPTI, and the right to use it"
            )
        kept = False
        for path in _written(folder, "*.trace.json.gz") if trace else ():
            with gzip.open(path) as stream:
                kept = keep(stream.read(), trace)
    profiler = "jax.profiler %s (%s)" % (jax.__version__, "CUPTI" if on_cuda else "operations on CPUs")
    return summed(activities, profiler, os.path.basename(trace) if kept else "")


def _profile(trainer: Any, iteration: Callable[[Callable[[str], Any]], None], folder: str) -> None:
    """Write the profile of PROFILED iterations into the folder."""

    @contextmanager
    def within(stage: str) -> Iterator[None]:
        trainer.synchronize()
        with jax.profiler.TraceAnnotation(RANGE + stage):
            yield
            trainer.synchronize()

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    for _ in range(WARMUP):
        iteration(within)
    with jax.profiler.trace(folder, profiler_options=options):
        for _ in range(PROFILED):
            iteration(within)


def _written(folder: str, name: str) -> List[str]:
    """Return the profile's files of that name: at most one, as one process has profiled."""
    return glob.glob(os.path.join(folder, "**", name), recursive=True)


def read(planes: Iterable[Any], on_cuda: bool) -> Iterator[Activity]:
    """Yield a profile's activities, without those outside of all stages."""
    stages: List[Tuple[str, float, float]] = []
    calls: List[Call] = []
    for plane in planes:
        for line in plane.lines:
            if plane.name.startswith(HOST):
                events = [(each, each.start_ns, each.start_ns + each.duration_ns) for each in line.events]
                stages += [
                    (one.name[len(RANGE) :], begin, end) for one, begin, end in events if one.name.startswith(RANGE)
                ]
                if not on_cuda:
                    calls += _operations(events)
            elif on_cuda and plane.name.startswith(DEVICE) and line.name.startswith(STREAM):
                calls += [
                    (each.name, _kind(each.name), each.start_ns, each.start_ns + each.duration_ns)
                    for each in line.events
                ]
    ranges = Ranges(stages)
    for name, kind, begin, end in calls:
        stage, iteration = ranges.of(begin, end)
        if stage:
            yield Activity(stage, iteration, name, kind, 1e-9 * (begin - ranges.begin), 1e-9 * (end - ranges.begin))


def _operations(events: Iterable[Tuple[Any, float, float]]) -> Iterator[Call]:
    """Yield a thread's outermost operations."""
    own = [(begin, -end, each.name) for each, begin, end in events if "hlo_op" in dict(each.stats)]
    last = float("-inf")
    for begin, minus_end, name in sorted(own):
        if begin >= last:
            last = -minus_end
            yield name, "operator", begin, last


def _kind(name: str) -> str:
    return next((kind for begin, kind in COPIES if name.lower().startswith(begin)), "kernel")
