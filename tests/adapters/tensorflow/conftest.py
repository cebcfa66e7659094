import pytest

pytest.importorskip("tensorflow")

from stagebench.adapters.tensorflow import machine
from stagebench.suite.worker.view import View
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from tests.adapters.alike import trainer_of
from tests.adapters.tensorflow.pictures import KINDS, of, pack, photograph
from tests.support import forked, networks, proofs
from tests.support.jobs import READ_ONCE
from tests.support.trainers import quick_to_compile

quick_to_compile()
forked.preload("tensorflow")

# Once for all tests of a process: TensorFlow's pools cannot change when they run.
for pool in ("intra_op", "inter_op"):
    machine.threads(pool, 1)


trainer = trainer_of("tensorflow")


@pytest.fixture(scope="session")
def small():
    """A graph with every layer kind that a trainer treats in its own way, two heads."""
    return networks.two_heads(grouped=True)


@pytest.fixture(scope="session")
def oracle(small, tmp_path_factory):
    """Folder of the float64 results of 8 samples of `small`."""
    return proofs.write_oracle(small, 8, tmp_path_factory.mktemp("oracle"))


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """A folder of them, which a test may not change."""
    folder = tmp_path_factory.mktemp("photographs")
    for number, (name, size, options) in enumerate(KINDS):
        label = folder / f"class{number % 3}"
        label.mkdir(exist_ok=True)
        photograph(label / name, size, number, **options)
    return folder


@pytest.fixture
def opened(trainer, tmp_path):
    """A function that makes a trainer which reads a source, and its view."""

    def make(source, shape, asked=(), rank=0, world=1, **options):
        ours = trainer(**options)
        ours.setup = ours.setup._replace(rank=rank, world=world)
        b = Builder("flat", shape, 10)
        b.head(b.dense("out", b.flatten("f", "input"), 10))
        ours.build(b.graph, dict(weights.initial(b.graph)))
        view = View(source, READ_ONCE._replace(**dict(asked)), ours.setup.seed, str(tmp_path / "skipped.txt"))
        ours.open_input(view)
        return ours, view

    return make


@pytest.fixture
def packed(trainer, photographs, tmp_path):
    """Nine images in two parts, of five and four."""
    return pack(trainer, of(photographs), tmp_path / "records", 2)
