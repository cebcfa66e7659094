"""Run as a script: when the controller has died, end what it had started.

    python reaper.py VARIABLE

A controller that is killed ends nothing. The kernel then ends its ranks (`guard.py`), but not what those have started.
Standard input has a line for each attempt, "+ MARK SECONDS" at its begin and "- MARK" at its end; it closes when the
controller ends, however that is. Then every process with VARIABLE=MARK in its environment gets as many seconds to end
by itself, and is killed. Elsewhere than on Linux nothing is found, and nothing is done.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

OFTEN, LONGEST = 0.1, 60.0  # seconds between two looks; for killed processes to be gone


def main() -> None:
    marks: dict[bytes, float] = {}
    for line in sys.stdin.buffer:
        sign, mark, *patience = line.split()
        if sign == b"+":
            marks[mark] = float(patience[0])
        else:
            marks.pop(mark, None)
    deadline = time.monotonic() + max(marks.values(), default=0.0)
    wanted = {os.fsencode(sys.argv[1]) + b"=" + mark for mark in marks}
    while (there := marked(wanted)) and time.monotonic() < deadline + LONGEST:
        for pid in there if time.monotonic() > deadline else ():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(OFTEN)


def marked(wanted: set[bytes]) -> list[int]:
    """The processes whose environment has one of these; a dead one has none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ") if wanted else ():
        with suppress(OSError):  # gone, or somebody else's
            if not wanted.isdisjoint(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends after the controller, and by itself
        signal.signal(ignored, signal.SIG_IGN)
    main()
