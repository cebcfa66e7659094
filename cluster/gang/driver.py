"""The common part of Spark's and Ray's drivers: they read the task, notice lost nodes, and print one line on a failure.

A driver runs in the Python that has the engine's package: standard library only.
"""

import json
import os
import re
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from stagebench.cluster.gang.node import FAREWELL, SAID, SIGN, Gang
from stagebench.suite.contracts.engine_messages import EngineFailed, report

NAME = "gang.json"  # in the attempt's folder
BEAT = 5.0  # seconds between two signs of life
LOST = 20.0  # seconds without one, after which a node is lost, and ends its ranks
NAMED_WITHIN = 1.0  # seconds for a connection to say whose it is
DEATH = re.compile(r"rank (?P<rank>\d+) on \S+ ended (by signal (?P<signal>\d+)|with exit code (?P<code>\d+))")


class Lifelines:
    """The port to which each task connects; both sides give signs of life as long as they live."""

    def __init__(self, proof: str, on_loss: Callable[[str], None]) -> None:
        """Listen; `on_loss` is called, in another thread, with a sentence that names the first lost node.

        A connection that does not begin with `proof` is not the gang's.
        """
        self._proof, self._listener = proof, socket.create_server(("", 0))
        self.port: int = self._listener.getsockname()[1]
        self.nodes: list[Node] = []  # that have ever connected
        Thread(target=self._watch, args=(on_loss,), daemon=True).start()

    def _watch(self, on_loss: Callable[[str], None]) -> None:
        lost, due = None, time.monotonic()
        try:
            while lost is None:
                if time.monotonic() >= due:
                    due = time.monotonic() + BEAT
                    for node in self.nodes:
                        node.beat()
                connected = [node.task for node in self.nodes if not node.ended]
                ready = select.select([self._listener, *connected], [], [], max(due - time.monotonic(), 0.0))[0]
                if self._listener in ready:
                    self._accept()
                for node in [node for node in self.nodes if node.task in ready]:
                    node.listen()
                # Once a task has taken leave, whether its ranks are done or one failed, the engine may end others.
                if not any(node.left for node in self.nodes):
                    lost = next((node for node in self.nodes if node.lost), None)
            on_loss(f"the host {lost.name} was lost: {lost.lost}")
        finally:
            for each in (self._listener, *(node.task for node in self.nodes)):
                each.close()

    def _accept(self) -> None:
        task = self._listener.accept()[0]
        task.settimeout(NAMED_WITHIN)
        proof, _, name = received(task).decode(errors="replace").partition(" ")
        if proof == self._proof and name.endswith("\n"):
            self.nodes.append(Node(task, name.strip()))
        else:  # not one of the gang's
            task.close()

    def named(self, text: str) -> str | None:
        """Return the only node whose address is in an engine's message; None if none is, or several are."""
        addresses = {node.name: re.escape(node.name.rpartition("(")[2].rstrip(")")) for node in self.nodes}
        names = [name for name, address in addresses.items() if re.search(rf"(?<![\d.]){address}(?!\d)", text)]
        return names[0] if len(names) == 1 else None


class Node:
    """A task's end of its lifeline."""

    def __init__(self, task: socket.socket, name: str) -> None:
        """Take a task's connection; `name` is "HOST (ADDRESS)"."""
        self.task, self.name = task, name
        self.left = self.ended = False
        self._unanswered = 0

    @property
    def lost(self) -> str:
        """The sign that the node is lost; "" while it is not."""
        if self.ended:
            return "its task ended without a word"
        return f"no sign of life for {LOST:g} s" if self._unanswered > LOST / BEAT else ""

    def beat(self) -> None:
        """Give a sign of life, which the task must answer."""
        self._unanswered += 1
        with suppress(OSError):  # it has ended
            self.task.send(SIGN)

    def listen(self) -> None:
        """Receive the task's messages; an empty one is its end."""
        message, self._unanswered = received(self.task), 0
        self.left = self.left or FAREWELL in message
        if not message:
            self.ended = True
            self.task.close()


def received(task: socket.socket) -> bytes:
    """Return a task's message; an empty one if it has ended."""
    with suppress(OSError):
        return task.recv(512)
    return b""


def main(engine: str, start: str, work: Callable[[Gang, int], None]) -> None:
    """Do the work of the attempt whose folder is the only argument; exit code 1 when it raises or loses a node.

    `work` is called with the port of the lifelines; `start` is the command that brings a node back. There is no
    farewell after a failure: an engine ends the tasks of a driver that has ended, and waiting for that may take longer
    than the ranks take to report another one's failure.
    """
    folder = Path(sys.argv[1])
    gang: Gang = json.loads((folder / NAME).read_text())
    remedy = f"bring it back, with {engine} on it (`{start}`), or name other hosts"

    def fail(error: Exception) -> None:
        explain(engine, folder, error)
        os._exit(1)

    lifelines = Lifelines(gang["proof"], lambda words: fail(RuntimeError(f"{SAID}{words}; {remedy}")))
    try:
        work(gang, lifelines.port)
    except Exception as error:
        lost = None if SAID in str(error) else lifelines.named(str(error))
        fail(RuntimeError(f"{SAID}the host {lost} was lost: {first_line(error)}; {remedy}") if lost else error)


def explain(engine: str, folder: Path, error: Exception) -> None:
    """Print the failure; if no rank failed, report it as the explanation of the ranks' end."""
    found = re.search(f"{SAID}(.*)", str(error))
    text = found[1].strip() if found else f"{engine}'s driver failed: {first_line(error)}"
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    if not DEATH.search(text):
        kind = "timeout" if isinstance(error, TimeoutError) else "crash"
        report(folder, EngineFailed(kind, text, time.time(), certain=True))


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".partition("\n")[0]
