"""The part of a record that one rank reported: its messages (stagebench.suite.worker.messages), kept as they are.

The last message of each type counts; passes are kept by name, and notes are joined.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from stagebench.suite.results.stored import Kept, Stored
from stagebench.suite.worker import messages
from stagebench.suite.worker.contract import LayerTimes
from stagebench.suite.worker.messages import Message, of_type
from stagebench.suite.worker.typed_json import to_json

Times = messages.ExchangeTimes | messages.OverlapTimes | messages.SkippedSizes


class Rank(Stored):
    """The report of a rank."""

    rank: int
    hello: Kept[messages.Hello] | None = None
    joined: Kept[messages.Joined] | None = None
    built: Kept[messages.Built] | None = None
    wire: dict[str, Kept[messages.Traffic]] | None = None  # by interface of its host, while it ran
    connections: tuple[Kept[messages.Connection], ...] = ()  # of its own process at the end of its task
    noise: Kept[messages.Noise] | None = None
    memory: Kept[messages.Memory] | None = None
    failed: Kept[messages.Failed] | None = None
    passes: dict[str, Kept[messages.Pass]] = {}
    model_server: Kept[messages.ServerUse] | None = None
    tries: tuple[Kept[messages.Try], ...] = ()  # of the load `server`, in order
    peaks: Kept[messages.Peaks] | None = None  # measured in a case's first process
    layers: tuple[Kept[LayerTimes], ...] | None = None
    kernels: Kept[messages.Kernels] | None = None
    training: Kept[messages.Training] | None = None
    exchanges: tuple[Kept[Times], ...] = ()  # of a collective, in order
    notes: dict[str, Any] = {}  # the trainer's own words


Sent = TypeVar("Sent", bound=tuple[Any, ...])


def rank_of(rank: int, sent: Sequence[Message]) -> Rank:
    """Return a rank's report from all of its messages."""
    layers, wire = last(messages.Layers, sent), last(messages.Wire, sent)
    return Rank(
        rank=rank,
        hello=last(messages.Hello, sent),
        joined=last(messages.Joined, sent),
        built=last(messages.Built, sent),
        wire=wire.interfaces if wire else None,
        connections=tuple(wire.connections) if wire else (),
        noise=last(messages.Noise, sent),
        memory=last(messages.Memory, sent),
        failed=last(messages.Failed, sent),
        passes={measured.name: measured for measured in of_type(messages.Pass, sent)},
        model_server=last(messages.ServerUse, sent),
        tries=tuple(of_type(messages.Try, sent)),
        peaks=last(messages.Peaks, sent),
        layers=tuple(layers.layers) if layers else None,
        kernels=last(messages.Kernels, sent),
        training=last(messages.Training, sent),
        exchanges=tuple(message for message in sent if isinstance(message, Times)),
        notes={name: to_json(note) for each in of_type(messages.Notes, sent) for name, note in each.notes.items()},
    )


def last(kind: type[Sent], sent: Sequence[Message]) -> Sent | None:
    """Return the last message of a type, or None."""
    received = of_type(kind, sent)
    return received[-1] if received else None


GPU = re.compile(r"GPU \d+: (.*) \(UUID: (.*)\)")  # a line of nvidia-smi's list


def models(machines: Iterable[messages.Machine], device: str) -> frozenset[str]:
    """Return the models of the hosts' processors that compute: their CPUs and, if the device is one, their GPUs."""
    found = set()
    for machine in machines:
        found.add(machine.cpu or "unknown")
        if device != "cpu":
            found |= {match[1] if (match := GPU.fullmatch(gpu)) else gpu for gpu in machine.gpus}
    return frozenset(found)


def is_end(text: str) -> bool:
    """Return whether a connection's end is an address and a port, such as "10.0.0.1:80" or "[::1]:80"."""
    address, _, port = text[:100].rpartition(":")
    try:
        parsed, number = ipaddress.ip_address(address.strip("[]")), int(port)
    except ValueError:
        return False
    written = f"[{parsed}]" if parsed.version == 6 else str(parsed)
    return "%" not in written and 0 <= number < 1 << 16 and text == f"{written}:{number}"
