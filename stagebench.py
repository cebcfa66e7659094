"""stagebench in Python: docs/python.md has an example.

A name is imported when it is used, so that `import stagebench` takes milliseconds. Oldest Python of this file: 3.6.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from os.path import abspath, dirname, isdir, join
from typing import TYPE_CHECKING

# In a clone and in a bundle the packages are next to this file, in a wheel below it: __init__.py's own folder.
__path__ = [os.path.dirname(os.path.abspath(__file__))]

if TYPE_CHECKING:
    from stagebench.reports.exports.sheet import frame
    from stagebench.suite import __version__
    from stagebench.suite.api.functions import cases, compare, links, open_run, plan, predict, rows, run
    from stagebench.suite.errors import Interrupted, RequestError, StagebenchError, StoreError, Unavailable

__all__ = [
    "Interrupted",
    "RequestError",
    "StagebenchError",
    "StoreError",
    "Unavailable",
    "__version__",
    "cases",
    "compare",
    "frame",
    "links",
    "open_run",
    "plan",
    "predict",
    "rows",
    "run",
]


def __getattr__(name: str) -> object:
    """Return one of the names above."""
    if name not in __all__:
        raise AttributeError(f"module 'stagebench' has no attribute {name!r}")
    _import_own()
    home = (
        "stagebench.suite.errors"
        if name[0].isupper()
        else "stagebench.suite"
        if name == "__version__"
        else "stagebench.suite.api.functions"
    )
    return getattr(import_module("stagebench.reports.exports.sheet" if name == "frame" else home), name)


def _import_own() -> None:
    """Import the packages that stagebench consists of, whatever else the user's folder calls by their names."""
    own = dirname(abspath(__file__))
    if not isdir(join(own, "suite")):  # an editable installation, which has a copy of this file alone
        found = find_spec("suite")
        own = dirname(dirname(abspath(found.origin or own))) if found else own
    sys.path.insert(0, own)
    try:
        for name in ("suite", "adapters", "cluster", "reports", "workloads"):
            module = import_module(name)
            if dirname(dirname(abspath(module.__file__ or own))) != own:
                raise ImportError(
                    f"stagebench needs its own package {name!r}, and {module.__file__} was imported before"
                )
    finally:
        sys.path.remove(own)


def __dir__() -> "list[str]":
    return __all__
