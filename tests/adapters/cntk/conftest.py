import sys

from tests.adapters.alike import trainer_of

# The plugin is the controller's, Python 3.11; all else runs in CNTK's environment, Python 3.6.
OLD = sys.version_info < (3, 11)
INSIDE = ["images", "input", "learners", "mpi", "trainer"]
collect_ignore = [] if OLD else ["test_%s.py" % name for name in INSIDE]


def pytest_configure(config):
    # CNTK is retired: every one of its factories asks its own arguments the way Python 3.0 gave up.
    config.addinivalue_line("filterwarnings", r"ignore:inspect.getargspec\(\) is deprecated:DeprecationWarning")


trainer = trainer_of("cntk", knobs={"block_steps": 10})
