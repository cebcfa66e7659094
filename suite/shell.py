"""Command lines for a shell, quoted."""

import shlex
from pathlib import Path


def command_line(*words: str | Path) -> str:
    """Quote words, so that a shell reads them back; a path never looks like an option."""
    return shlex.join(_operand(word) if isinstance(word, Path) else word for word in words)


def _operand(path: Path) -> str:
    return f"./{path}" if str(path).startswith("-") else str(path)
