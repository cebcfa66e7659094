"""From the messages of a rank to its part of a record: the last one of each type, passes by name, notes joined."""

from collections.abc import Sequence
from typing import Any, TypeVar

from suite.results.rank_report import (
    Connection,
    Failed,
    Hello,
    Joined,
    Kernels,
    Layer,
    Memory,
    Noise,
    Pass,
    Peaks,
    Rank,
    Traffic,
    Training,
)
from suite.results.stored import Stored
from suite.worker import messages
from suite.worker.messages import Message, of_type
from suite.worker.typed_json import to_json

Sent = TypeVar("Sent", bound=tuple[Any, ...])
Part = TypeVar("Part", bound=Stored)


def training_rank(rank: int, sent: Sequence[Message]) -> Rank:
    layers, notes = last(messages.Layers, sent), of_type(messages.Notes, sent)
    return Rank(
        rank=rank,
        **life(sent),
        passes={each.name: Pass.model_validate(each) for each in of_type(messages.Pass, sent)},
        peaks=_as(Peaks, last(messages.Peaks, sent)),
        layers=tuple(Layer.model_validate(each) for each in layers.layers) if layers else None,
        kernels=_as(Kernels, last(messages.Kernels, sent)),
        training=_as(Training, last(messages.Training, sent)),
        notes={name: to_json(note) for each in notes for name, note in each.notes.items()},
    )


def life(sent: Sequence[Message]) -> dict[str, Any]:
    """What every rank reports, as fields of `AnyRank`."""
    wire = last(messages.Wire, sent)
    return {
        "hello": _as(Hello, last(messages.Hello, sent)),
        "joined": _as(Joined, last(messages.Joined, sent)),
        "wire": {name: Traffic.model_validate(each) for name, each in wire.interfaces.items()} if wire else None,
        "connections": tuple(Connection.model_validate(each) for each in wire.connections) if wire else (),
        "noise": _as(Noise, last(messages.Noise, sent)),
        "memory": _as(Memory, last(messages.Memory, sent)),
        "failed": _as(Failed, last(messages.Failed, sent)),
    }


def last(kind: type[Sent], sent: Sequence[Message]) -> Sent | None:
    """The last one of a type; None where there is none."""
    found = of_type(kind, sent)
    return found[-1] if found else None


def _as(part: type[Part], message: object) -> Part | None:
    return None if message is None else part.model_validate(message)
