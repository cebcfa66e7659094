"""Lines for a shell, whatever stands in their words."""

import shlex
from pathlib import Path


def command_line(*words: str | Path) -> str:
    """The words quoted, so that a shell reads them back; a path is never taken for an option."""
    return shlex.join(_operand(word) if isinstance(word, Path) else word for word in words)


def _operand(path: Path) -> str:
    return f"./{path}" if str(path).startswith("-") else str(path)
