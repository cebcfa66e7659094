"""What is wrong with a plan: every problem with its line, told in one message."""

from dataclasses import dataclass, field
from pathlib import Path

from suite.errors import RequestError
from suite.plan.locator import Locator
from suite.plan.locator import Path as KeyPath


@dataclass
class Problems:
    """Collects problems of one file; the same one is kept once."""

    file: Path
    locator: Locator
    found: set[tuple[int, str]] = field(default_factory=set)

    def add(self, path: KeyPath, message: str) -> None:
        """A problem at a key path."""
        self.found.add((self.locator.line(path), message))

    def at(self, path: KeyPath) -> str:
        """`file:line` of a key path."""
        return f"{self.file}:{self.locator.line(path)}"

    def raise_any(self) -> None:
        """RequestError that lists all problems by line, if there are any."""
        if not self.found:
            return
        lines = [f"{self.file}:{line}: {message}" for line, message in sorted(self.found)]
        count = "one problem" if len(lines) == 1 else f"{len(lines)} problems"
        raise RequestError(f"the plan has {count}; nothing was started\n" + "\n".join(lines))
