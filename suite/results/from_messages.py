"""From the messages of a rank to what a record of format 1 keeps of them."""

from collections.abc import Sequence
from typing import Any

from suite.worker import messages
from suite.worker.messages import Message, of_type
from suite.worker.typed_json import to_json


def training_rank(rank: int, sent: Sequence[Message]) -> dict[str, Any]:
    """The last message of each type, the passes by name, the notes joined."""
    notes: dict[str, Any] = {}
    for each in of_type(messages.Notes, sent):
        notes.update(to_json(each.notes))
    layers, training = of_type(messages.Layers, sent), of_type(messages.Training, sent)
    return {
        "rank": rank,
        **_life(sent),
        "passes": {each.name: _pass(each) for each in of_type(messages.Pass, sent)},
        "notes": notes,
        "layers": to_json(layers[-1].layers) if layers else None,
        "training": _training(training[-1]) if training else None,
    }


def comm_rank(rank: int, sent: Sequence[Message]) -> dict[str, Any]:
    """The rows in order."""
    return {"rank": rank, **_life(sent), "rows": [row for row in map(comm_row, sent) if row]}


def comm_row(message: Message) -> dict[str, Any] | None:
    """One measured row; None for a message that is none."""
    match message:
        case messages.ExchangeTimes():
            names = {"sample_s": "seconds", "wait_s": "waits"}
            return {names.get(key, key): value for key, value in to_json(message).items()}
        case messages.OverlapTimes():
            names = {"exchange_s": "comm_s", "compute_s": "comp_s"}
            return {"kind": "overlap", **{names.get(key, key): value for key, value in to_json(message).items()}}
        case messages.SkippedSizes():
            return {"kind": "left out", "bytes": message.bytes}
    return None


def _life(sent: Sequence[Message]) -> dict[str, Any]:
    """What every record keeps."""
    found: dict[str, Any] = {"hello": None, "joined": None, "wire": None}
    for message in sent:
        if isinstance(message, messages.Hello | messages.Joined):
            found[messages.name_of(message)] = to_json(message)
        elif isinstance(message, messages.Wire):
            traffic = message.interfaces.items()
            found["wire"] = {name: {"received": one.received_bytes, "sent": one.sent_bytes} for name, one in traffic}
        elif isinstance(message, messages.Failed):
            found["failed"] = {"kind": message.kind, "message": message.message, "traceback": message.traceback}
    return found


def _pass(found: messages.Pass) -> dict[str, Any]:
    content: dict[str, Any] = to_json(found)
    return {"pass": content.pop("name"), **content}


def _training(found: messages.Training) -> dict[str, Any]:
    names = {"train_s": "seconds", "test_s": "test_seconds"}
    return {
        "epochs": [{names.get(key, key): value for key, value in to_json(epoch).items()} for epoch in found.epochs],
        "loss_steps": found.loss_steps,
        "losses": to_json(found.losses),
        "loss_seconds": found.loss_s,
    }
