"""The last lines of a log, however large it is."""

from pathlib import Path

from suite.plain import plain

WINDOW = 65536  # bytes looked at
WIDTH = 300  # characters of a line that are kept


def last_lines(path: Path, count: int) -> list[str]:
    """Up to `count` last lines with something on them; none when there is no such file."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - WINDOW))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    kept = (plain(line).rstrip()[:WIDTH] for line in text.splitlines())
    return [line for line in kept if line.strip()][-count:]
