"""Which engine this interpreter has Horovod for."""

import importlib
import warnings
from importlib.util import find_spec

ENGINES = {"mxnet": "mxnet", "pytorch": "torch", "tensorflow": "tensorflow"}


def engine():
    """Its name, or None: then there is nothing to test here."""
    if find_spec("horovod") is None:
        return None
    return next((name for name, module in ENGINES.items() if find_spec(module)), None)


def trainer(setup):
    """The engine's trainer of a setup."""
    with warnings.catch_warnings():
        # MXNet uses NumPy's old names (np.bool), and warns of it at every import.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"stagebench.adapters.horovod.over_{engine()}").AllReduce(setup)
