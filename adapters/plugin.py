"""The adapters of this tree: every folder here that holds a `plugin`. Nothing else lists them.

A package of somebody else's names its plugin in the entry-point group `stagebench` (`suite.contracts.hooks`),
and so does this file, once for all: a new adapter is to need no change outside of its folder.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from suite.contracts.hooks import hookimpl


@hookimpl
def stagebench_plugins() -> list[ModuleType]:
    """The plugin of every folder."""
    folders = sorted(path.parent.name for path in Path(__file__).parent.glob("*/plugin.py"))
    return [import_module(f"adapters.{folder}.plugin") for folder in folders]
