"""Run as a script: log in to another host, and keep what runs there alive for as long as we live.

    python lifeline.py SECONDS PROGRAM ARGUMENT ...

The other end (`cluster/remote.py`) ends its program when nothing comes through the login's
standard input any more; so every SECONDS something comes. Asked to end, this closes it and waits until
the other end has done so. Ends as the other program did: by the same signal, where it was one.
Where STAGEBENCH_LOGINS names a file, the end is written there instead, and this one's own is always a good one:
an engine that started it would hide a rank's end behind it.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time

FILE = "STAGEBENCH_LOGINS"
SIGNALLED = range(129, 160)  # 128 + N: how shells and `remote.py` tell of signal N


def main() -> None:
    """PROGRAM's last arguments are the host and the command."""
    seconds, tokens = float(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited: who ends a whole group must not cut the login
    child = subprocess.Popen(tokens, stdin=subprocess.PIPE)
    assert child.stdin is not None
    pipe = child.stdin.fileno()
    signal.signal(signal.SIGTERM, lambda *_: os.dup2(os.open(os.devnull, os.O_WRONLY), pipe))
    threading.Thread(target=beat, args=(pipe, seconds), daemon=True).start()
    code, file = child.wait(), os.environ.get(FILE)
    if not file:
        leave(code)
    with open(str(file), "a") as stream:
        stream.write(json.dumps({"host": tokens[-2], "code": code, "time_s": time.time()}) + "\n")


def beat(pipe: int, seconds: float) -> None:
    """Say that we live; whether anybody listens, the login itself finds out."""
    while True:
        with contextlib.suppress(OSError):
            os.write(pipe, b".")
        time.sleep(seconds)


def leave(code: int) -> None:
    """End as the other program did."""
    number = -code if code < 0 else code - 128
    if code >= 0 and code not in SIGNALLED:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the other host has the dump, if anybody
    with contextlib.suppress(OSError):  # some cannot be set, and need not
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(code % 256)


if __name__ == "__main__":
    main()
