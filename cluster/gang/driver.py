"""What Spark's and Ray's driver share: they read what is to run, and say on one line why it failed.

A driver runs in the Python that has the engine's package: standard library only.
"""

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from cluster.gang.node import SAID, Gang
from suite.contracts.engine_messages import EngineFailed, report

NAME = "gang.json"  # in the attempt's folder
BEAT = 5.0  # seconds between two signs of life
DEATH = re.compile(r"rank (?P<rank>\d+) on \S+ ended (by signal (?P<signal>\d+)|with exit code (?P<code>\d+))")


def main(engine: str, work: Callable[[Gang], None]) -> None:
    """Do the work of the attempt whose folder is the only argument; exit code 1 when it raises.

    Then there is no farewell: an engine ends the tasks of a driver that has gone, and whoever waits for it may take
    longer than the ranks do to report the failure of another.
    """
    folder = Path(sys.argv[1])
    gang: Gang = json.loads((folder / NAME).read_text())
    try:
        work(gang)
    except Exception as error:
        explain(engine, folder, error)
        os._exit(1)


def beating() -> int:
    """A port where whoever connects gets a sign of life every few seconds, as long as this process lives."""
    listener = socket.create_server(("", 0))
    Thread(target=beat, args=(listener,), daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


def beat(listener: socket.socket) -> None:
    tasks: list[socket.socket] = []
    listener.settimeout(BEAT)
    while True:
        with suppress(TimeoutError):
            tasks.append(listener.accept()[0])
        for task in tasks:
            with suppress(OSError):  # it has gone
                task.send(b".")


def explain(engine: str, folder: Path, error: Exception) -> None:
    """Print what failed; where that was no rank, report it as what explains the ranks' end."""
    found = re.search(f"{SAID}(.*)", str(error))
    text = found[1].strip() if found else f"{engine}'s driver failed: {first_line(error)}"
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    if not DEATH.search(text):
        kind = "timeout" if isinstance(error, TimeoutError) else "crash"
        report(folder, EngineFailed(kind, text, time.time(), certain=True))


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".partition("\n")[0]
