"""Numbers in a trainer's notes, which are an adapter's free words: whatever stands there, a page is made."""

from typing import Any

MOST = 1e15  # of anything that is noted: beyond it, sums and products leave what a float holds


def noted(note: Any, name: str) -> float | None:
    """A number from 0 by its name in a note; None where there is none, or something else."""
    found = note.get(name) if isinstance(note, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= MOST:
        return None
    return float(found)
