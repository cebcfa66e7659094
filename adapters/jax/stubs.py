"""What a stub says. Delete this file when nothing imports it any more.

Oldest Python: 3.6.
"""

from typing import Any


def unwritten(stub: Any) -> NotImplementedError:
    """The stub's name, its file, and what its docstring wants written there."""
    wanted = " ".join((stub.__doc__ or "").split())
    return NotImplementedError(
        "%s in %s.py is a stub still; write what its docstring says: %s"
        % (stub.__qualname__, stub.__module__.replace(".", "/"), wanted)
    )
