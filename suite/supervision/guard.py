"""Run as a script: become another program that the kernel ends when our parent dies.

    python guard.py PARENT SIGNAL PROGRAM ARGUMENT ...

A controller that is killed cannot end its ranks; the kernel can (prctl(2),
PR_SET_PDEATHSIG, which outlives exec). Set here and not between fork and exec of the
controller, where Python code is unsafe beside threads. To the kernel "parent" is the thread that
started us, so it must live as long as we may: `suite.supervision.run` waits. Elsewhere than on Linux it only
runs the program.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CANNOT_START = 127  # as a shell says it


def main() -> None:
    parent, number, tokens = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before we asked
            os._exit(128 + number)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would keep that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(tokens[0], tokens)
    except OSError as error:
        os.write(2, f"cannot start {tokens[0]}: {error.strerror}\n".encode())
        os._exit(CANNOT_START)


if __name__ == "__main__":
    main()
