"""The backends that adapters offer, and where each of them can run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from suite.contracts.adapter import Adapter, Backend
from suite.errors import RequestError
from suite.plugins import adapters
from suite.processes.interpreters import Interpreter, find


@dataclass(frozen=True)
class Offer:
    """A backend with the adapter that brings it; it has the attributes that `find` reads of an adapter."""

    adapter: Adapter
    backend: Backend

    @property
    def name(self) -> str:
        """The name in `--python NAME=PATH`: the backend's if it has an environment of its own, else the adapter's."""
        return self.backend.name if self.backend.environment else self.adapter.name

    @property
    def environment(self) -> str | None:
        return self.backend.environment or self.adapter.environment

    @property
    def requires(self) -> tuple[str, ...]:
        return self.backend.requires if self.backend.environment else self.adapter.requires

    @property
    def remedy(self) -> str:
        return self.backend.remedy if self.backend.environment else self.adapter.remedy

    def missing(self, interpreter: Path) -> str | None:
        """Return what the interpreter's environment lacks: the backend's programs, or the adapter's requirements."""
        if not self.backend.environment:
            return self.adapter.missing(interpreter)
        missing = [name for name in self.backend.programs if not (interpreter.parent / name).exists()]
        if not missing:
            return None
        absent = " and no ".join(missing)
        return f"there is no {absent} next to {interpreter}, so this is not its environment; {self.remedy}"

    def interpreter(self, settings: Mapping[str, str]) -> Interpreter:
        """Return the Python that it runs in; Unavailable with the remedy."""
        return find(self, settings)


def offers() -> dict[str, Offer]:
    """Return every backend by name; RequestError if two adapters use one name."""
    by_name: dict[str, Offer] = {}
    for adapter in adapters().values():
        for backend in adapter.backends:
            if backend.name in by_name:
                raise RequestError(f"two adapters bring the backend {backend.name!r}; uninstall or rename one of them")
            by_name[backend.name] = Offer(adapter, backend)
    return by_name
