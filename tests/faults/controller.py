"""`stagebench` with the campaign's adapter, on a disk and beside a clock that turn bad after a while.

    python tests/faults/controller.py FAULT SECONDS run PLAN -o FOLDER

FAULT is "none", or what happens SECONDS after the start: "full disk", "broken disk", "slow disk", "clock jump",
"clock jump back".
"""

import errno
import os
import sys
import threading
import time

from tests.faults import adapter

LASTS = 1.0  # seconds
JUMPS = {"clock jump": 86400.0, "clock jump back": -86400.0}  # seconds


def inject(fault: str) -> None:
    """Called when its time has come."""
    flush, now = os.fsync, time.time

    def refuse(number: int) -> None:
        raise OSError(number, os.strerror(number))

    def slowly(descriptor: int) -> None:
        time.sleep(0.3)
        flush(descriptor)

    if fault in JUMPS:
        time.time = lambda: now() + JUMPS[fault]  # type: ignore[assignment]
        return
    number = errno.ENOSPC if fault == "full disk" else errno.EIO
    os.fsync = slowly if fault == "slow disk" else lambda descriptor: refuse(number)  # type: ignore[assignment]
    time.sleep(LASTS)
    os.fsync = flush


def main() -> int:
    """The command's exit code."""
    fault, seconds = sys.argv[1], float(sys.argv[2])
    if fault != "none":
        timer = threading.Timer(seconds, inject, (fault,))
        timer.daemon = True
        timer.start()
    del sys.argv[1:3]
    adapter.register()
    from suite import cli

    return int(cli.program() or 0)


if __name__ == "__main__":
    sys.exit(main())
