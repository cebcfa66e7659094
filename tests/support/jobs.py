"""Jobs as small as they can be; keywords change their fields."""

import os

from suite.worker.contract import SGD
from suite.worker.job import DataSet, Group, Input, Measure, Pack, Recipe, Sampling
from suite.worker.packed_set import FORMAT, MARKER, Marker, Skipped, files_of
from suite.worker.typed_json import store
from workloads.networks import by_name

READ_ONCE = Input(mode="disk", page_cache="as is", repeat=1, augment="centre", on_error="fail")
SHORT = Sampling(warmup_steps=5, warmup_limit_s=0.0, steps=3, seconds=0.0)  # as the loop allows
RANK = Group(
    ranks=1,
    ranks_per_node=1,
    binding="none",
    trainer="adapters.reference.base:ReferenceTrainer",
    strategy="single",
    device="cpu",
    devices=1,
    threads=1,
    batch=4,
    precision="float64",
    tuning="default",
    knobs={"shards": 1, "observed": 1},
    optimiser=SGD(0.001, 0.9, 0.0),
    seed=1,
    readers=0,
    prefetch=2,
    model_parallel_size=1,
    changing_rate=False,
    share_devices=False,
    memory_limit=0,
)


def graph(name="mnist_small"):
    """A built-in network."""
    return by_name()[name].graph()


def measure(*passes, **changes):
    """Passes of mnist_small on synthetic data; without a name, native and staged."""
    plain = Measure(graph(), list(passes or ("native", "staged")), SHORT, READ_ONCE)
    return plain._replace(**changes)


def packing(form, folder, parts=1, kind="folder", shape=(), **changes):
    """Packing a set into a folder, for suite.worker.packing.pack, which is given the source beside it."""
    recipe = Recipe("photographs", kind, "0a1b", list(shape), 0, "toy")
    plain = Pack(graph(), DataSet(kind, "photographs"), form, str(folder), parts, "fail", 0, recipe)
    return plain._replace(**changes)


def mark(folder, form, kind, classes, samples, parts, shape=()):
    """What packing writes last: the set in a folder is whole."""
    files, skipped = files_of(str(folder), parts), Skipped(0, [])
    content = Marker("made", kind, "", list(shape), 0, "toy", FORMAT, form, classes, samples, parts, files, skipped)
    store(content, os.path.join(str(folder), MARKER))
