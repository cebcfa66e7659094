"""Jobs as small as they can be; keywords change their fields."""

import os

from stagebench.suite.worker.case_parts import Input, Sampling
from stagebench.suite.worker.contract import SGD, Setup
from stagebench.suite.worker.job import DataSet, Group, Measure, Pack, Recipe
from stagebench.suite.worker.packed_set import FORMAT, MARKER, Marker, Skipped, files_of
from stagebench.suite.worker.typed_json import store
from stagebench.workloads.networks import by_name

READ_ONCE = Input()
SHORT = Sampling(warmup_steps=5, warmup_limit=0.0, steps=3, seconds=0.0)  # as the loop allows
RANK = Group(
    trainer="stagebench.adapters.reference.base:ReferenceTrainer",
    setup=Setup(
        rank=0,
        world=1,
        local_rank=0,
        strategy="single",
        device="cpu",
        threads=1,
        batch=4,
        precision="float64",
        tuning="default",
        knobs={"shards": 1, "observed": 1, "bits": 53},
        optimiser=SGD(0.001, 0.9, 0.0),
        seed=1,
        readers=0,
    ),
    ranks_per_node=1,
    binding="none",
    memory_limit=0,
)


def ranks(**changes):
    """RANK, but for these fields of it or of its setup."""
    own = {name: changes.pop(name) for name in Group._fields if name in changes}
    return RANK._replace(setup=RANK.setup._replace(**changes), **own)


def graph(name="mnist_small"):
    """A built-in network."""
    return by_name()[name].graph()


def measure(*passes, **changes):
    """Passes of mnist_small on synthetic data; without a name, native and staged."""
    plain = Measure(graph(), list(passes or ("native", "staged")), SHORT, READ_ONCE)
    return plain._replace(**changes)


def packing(form, folder, parts=1, kind="folder", shape=(), **changes):
    """Packing a set into a folder, for stagebench.suite.worker.packed_set.pack, which is given the source beside it."""
    recipe = Recipe("photographs", kind, "0a1b", list(shape), 0, "toy")
    plain = Pack(graph(), DataSet(kind, "photographs"), form, str(folder), parts, "fail", 0, recipe)
    return plain._replace(**changes)


def mark(folder, form, kind, classes, samples, parts, shape=()):
    """What packing writes last: the set in a folder is whole."""
    files, skipped = files_of(str(folder), parts), Skipped(0, [])
    content = Marker("made", kind, "", list(shape), 0, "toy", FORMAT, form, classes, samples, parts, files, skipped)
    store(content, os.path.join(str(folder), MARKER))
