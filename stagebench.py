"""stagebench in Python: docs/python.md has an example.

A name is imported when it is used, so that `import stagebench` takes milliseconds. Oldest Python of this file: 3.6.
"""

from importlib import import_module
from os.path import abspath, dirname
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagebench.reports.exports.sheet import frame
    from stagebench.suite import __version__
    from stagebench.suite.api.functions import cases, compare, links, open_run, plan, predict, rows, run
    from stagebench.suite.errors import Interrupted, RequestError, StagebenchError, StoreError, Unavailable

# The packages' folder: in a clone and in a bundle they are next to this file; in a wheel this file is its __init__.py.
__path__ = [dirname(abspath(__file__))]

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
    home = "errors" if name[0].isupper() else "api.functions"
    home = {"__version__": "suite", "frame": "reports.exports.sheet"}.get(name, f"suite.{home}")
    return getattr(import_module(f"stagebench.{home}"), name)


def __dir__() -> "list[str]":
    return __all__
