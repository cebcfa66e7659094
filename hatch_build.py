"""The wheel's root module, which hatch asks for here: an editable installation has the clone's own stagebench.py."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RootModule(BuildHookInterface[Any]):
    """Adds the files of the package `stagebench` itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them to a wheel; called before each build."""
        if version != "editable":
            build_data["force_include"] |= {
                "stagebench.py": "stagebench/__init__.py",
                "suite/py.typed": "stagebench/py.typed",
            }
