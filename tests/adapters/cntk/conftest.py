import sys

from tests.adapters.alike import trainer_of

collect_ignore_glob = [] if sys.version_info < (3, 7) else ["test_*.py"]  # CNTK's last Python is 3.6


def pytest_configure(config):
    # CNTK is retired: every one of its factories asks its own arguments the way Python 3.0 gave up.
    config.addinivalue_line("filterwarnings", r"ignore:inspect.getargspec\(\) is deprecated:DeprecationWarning")


trainer = trainer_of("cntk", knobs={"block_steps": 10})
