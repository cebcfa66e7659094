"""The adapters of this tree: every folder here that holds a `plugin`. No other file lists them.

A third party's package names its plugin in the entry-point group `stagebench` (`stagebench.suite.contracts.hooks`).
This file is named there once for all folders, so that a new adapter needs no change outside its folder.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from stagebench.suite.contracts.hooks import hookimpl


@hookimpl
def stagebench_plugins() -> list[ModuleType]:
    """Return the plugin of every folder."""
    folders = sorted(path.parent.name for path in Path(__file__).parent.glob("*/plugin.py"))
    return [import_module(f"stagebench.adapters.{folder}.plugin") for folder in folders]
