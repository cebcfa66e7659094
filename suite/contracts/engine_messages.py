"""The messages of an engine about itself, in the attempt's engine.jsonl: one per line, like the ranks' messages.

A launcher whose engine has more to report than an exit code appends messages with `report`. Standard library only.
"""

from pathlib import Path
from typing import NamedTuple

from stagebench.suite.worker.typed_json import LineCodec

FILE = "engine.jsonl"


class Begun(NamedTuple):
    """The ranks' turn has come: the limits of the case count (stagebench.suite.contracts.launcher.Process.queues)."""

    job: str = ""
    nodes: str = ""


class EngineFailed(NamedTuple):
    """Why the engine ended badly."""

    kind: str  # an outcome of stagebench.suite.results.records.Outcome
    message: str  # the reason, a complete sentence
    time_s: float  # seconds since the epoch
    certain: bool = False  # True: it caused whatever the ranks reported, as when their job was cancelled from outside


class OomKills(NamedTuple):
    """Processes that the kernel of another host ended for want of memory while ranks ran there; none: no message.

    Whoever watches a rank there reports it, so that several may report the same.
    """

    host: str
    processes: int


EngineMessage = Begun | EngineFailed | OomKills
CODEC = LineCodec(EngineMessage)


def report(folder: Path, message: EngineMessage) -> None:
    """Append one message to the file in `folder`, the attempt's (`Request.folder`)."""
    with (folder / FILE).open("a") as stream:
        stream.write(f"{CODEC.encode(message)}\n")
