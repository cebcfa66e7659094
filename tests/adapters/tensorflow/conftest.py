import pytest

pytest.importorskip("tensorflow")

from adapters.reference.worker import ReferenceTrainer
from adapters.tensorflow import machine
from adapters.tensorflow.worker import TensorFlowTrainer
from suite.worker import evidence
from suite.worker.contract import SGD, Setup
from workloads.build import Builder

# Once for all tests of a process: TensorFlow's pools cannot change when they run.
for pool in ("intra_op", "inter_op"):
    machine.threads(pool, 1)

OPTIMISER = SGD(0.01, 0.9, 1e-3)


def make_trainer(strategy="single", tuning="tuned", precision="float32", device="cpu", readers=0, batch=2, **knobs):
    return TensorFlowTrainer(
        Setup(0, 1, 0, strategy, device, 1, batch, precision, tuning, knobs, OPTIMISER, 1, readers)
    )


@pytest.fixture
def trainer():
    """A function that makes a started, single-rank trainer; all are closed at the end."""
    made = []

    def make(**options):
        made.append(make_trainer(**options))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def small():
    """A graph with every layer kind that a trainer treats in its own way, two heads."""
    b = Builder("small", (3, 12, 12), 5)
    x = b.relu("r1", b.conv_bn("c1", "input", 6, 3, pad=1))
    x = b.graph.add("grouped", "conv", (x,), out=6, kernel=3, pad=1, groups=2)
    x = b.lrn("n1", b.relu("r2", b.add("sum", b.conv_bn("c2", x, 6, 3, pad=1), x)), alpha=0.1)
    b.head(b.dense("fc1", b.flatten("f1", b.avg_pool("a", x, 4, 4)), 5), 0.3)
    b.head(b.dense("fc2", b.flatten("f2", b.dropout("d", b.max_pool("p", x, 3, 2, ceil=True), 0.5)), 5))
    return b.graph


@pytest.fixture(scope="session")
def oracle(small, tmp_path_factory):
    """Folder of the float64 results of 8 samples of `small`."""
    folder = tmp_path_factory.mktemp("oracle")
    trainer = ReferenceTrainer(Setup(0, 1, 0, "single", "cpu", 1, 8, "float64", "default", {}, OPTIMISER, 1, 0))
    trainer.start()
    evidence.write_oracle(trainer, small, 8, str(folder))
    return str(folder)
