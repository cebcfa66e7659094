import sys

import pytest

# The plugin is the controller's, Python 3.11; all else runs in CNTK's environment, Python 3.6.
OLD = sys.version_info < (3, 11)
INSIDE = ["adam", "images", "lower", "mpi", "reading", "trainer"]
collect_ignore = ["test_plugin.py"] if OLD else ["test_%s.py" % name for name in INSIDE]


def pytest_configure(config):
    # CNTK is retired: every one of its factories asks its own arguments the way Python 3.0 gave up.
    config.addinivalue_line("filterwarnings", r"ignore:inspect.getargspec\(\) is deprecated:DeprecationWarning")


def make_trainer(strategy="single", tuning="tuned", precision="float32", readers=0, batch=2, adam=None, **knobs):
    from adapters.cntk.worker import CNTKTrainer
    from suite.worker.contract import SGD, Setup

    optimiser, knobs = adam or SGD(0.01, 0.9, 1e-3), dict({"block_steps": 10}, **knobs)
    return CNTKTrainer(Setup(0, 1, 0, strategy, "cpu", 1, batch, precision, tuning, knobs, optimiser, 1, readers))


@pytest.fixture
def trainer():
    """A function that makes a started trainer without MPI; all are closed at the end."""
    made = []

    def make(**options):
        made.append(make_trainer(**options))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()
