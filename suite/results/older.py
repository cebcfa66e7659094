"""Formats 1 to 3 read as format 4: each file's JSON with today's names, checked afterwards like any other.

Format 3 has today's names and fewer fields; its figures are those of method 2. What the others did not keep is left
out; of format 1, that is the adapter's declarations, every rank's machine and a network's tensor names. Their figures
are those of method 1.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from suite.errors import StoreError

Json = dict[str, Any]
Upgrade = Callable[[Json], Json]

METHOD = 1  # of all records of format 1, whatever is measured today
SAME = ("case_id", "repeat", "outcome", "reason", "started", "seconds", "bundle", "load")
HELLO = ("host", "world", "pid", "python", "numpy", "cores", "host_cores", "boot", "threads", "settings")
JOINED = ("rank", "world", "devices", "transport", "versions", "settings")
PASS = ("samples", "steady", "warmup_s", "step_s", "wall_s", "io_s", "stage_s", "loss")
EPOCH = ("samples", "steps", "accuracy", "loss")
LIMITS = {"seconds": "total_s", "silence": "silence_s", "joining": "joining_s"}
HOST = ("host", "cpu", "cores", "cores_installed", "governor", "memory_bytes", "kernel", "os", "gpus", "python")


def upgraded(written: int, upgrade: Upgrade, content: Json, path: Path, remedy: str) -> Json:
    """A file's content of the format `written`; StoreError when it has not that shape.

    `upgrade` is one of the functions below, what becomes of format 1.
    """
    try:
        if written < 3:
            content = _of_format_2(upgrade(content) if written == 1 else content)
        return {name: value for name, value in content.items() if name != "format"}
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise StoreError(
            f"{path} is not a whole file of format {written} ({type(error).__name__}: {error}); {remedy}"
        ) from error


def _of_format_2(old: Json) -> Json:
    """Any file: a case's sampling had a bound on how far a warm-up's last steps may differ, evidence fewer units."""
    new = dict(old)
    if "case" in old:
        new["case"] = _without_steady(old["case"])
    if old.get("evidence"):
        new["evidence"] = _with_units(old["evidence"])
    if "cases" in old:
        new["cases"] = [{**entry, "case": _without_steady(entry["case"])} for entry in old["cases"]]
    return new


def _with_units(evidence: Json) -> Json:
    """How an attempt ended; of its engine's messages those that still mean something."""
    stopped, limits = evidence.get("stopped"), evidence.get("limits")
    return {
        **evidence,
        "stopped": stopped and {**_kept(stopped, ("why", "rank")), "limit_s": stopped["seconds"]},
        "limits": limits and {LIMITS[name]: value for name, value in limits.items()},
        "lost_logins": [
            {**_kept(login, ("host", "code")), "time_s": login["time"]} for login in evidence.get("lost_logins", ())
        ],
        "engine": [each for each in evidence.get("engine", ()) if each.get("type") in ("begun", "failed")],
    }


def _without_steady(case: Json) -> Json:
    sampling = case.get("sampling")
    if sampling is None:  # of communication
        return case
    return {**case, "sampling": {name: value for name, value in sampling.items() if name != "steady"}}


def about(old: Json) -> Json:
    return {**_kept(old, ("kind", "stagebench", "created", "command", "plan", "collected")), "method": METHOD}


def cases(old: Json) -> Json:
    """cases.json, of trainings and of communication."""
    entries = [{**_kept(entry, ("id", "outcome", "reason")), "case": case(entry["case"])} for entry in old["cases"]]
    return {"scale": old.get("scale"), "cases": entries}


def case(old: Json) -> Json:
    """A case, of training or of communication: Adam's beta1 was called its momentum."""
    if old.get("optimiser") == "adam" and "beta1" not in old:
        return {**old, "beta1": old["momentum"], "momentum": 0.0}
    return old


def host(old: Json) -> Json:
    return _kept(old, HOST)


def record(old: Json) -> Json:
    return {
        **_measured(old),
        "proof": old.get("proof"),
        "proof_reason": old.get("proof_reason") or "",
        "ranks": [rank(each) for each in old["ranks"]],
    }


def comm_record(old: Json) -> Json:
    return {**_measured(old), "ranks": [comm_rank(each) for each in old["ranks"]]}


def rank(old: Json) -> Json:
    return {**_rank(old), **_trained(old)}


def comm_rank(old: Json) -> Json:
    return {**_rank(old), "rows": [_row(row) for row in old["rows"]]}


def proof(old: Json) -> Json:
    """proofs/KEY.json: as it was, without what was null."""
    return {key: value for key, value in old.items() if value is not None or key == "key"}


def _measured(old: Json) -> Json:
    python = old["interpreter"]
    return {
        **_kept(old, SAME),
        "method": METHOD,
        "case": case(old["case"]),
        "interpreter": _kept(python, ("path", "origin", "version", "packages")),
        "evidence": old.get("evidence") or None,
    }


def _rank(old: Json) -> Json:
    hello, joined, wire, failed = (old.get(name) for name in ("hello", "joined", "wire", "failed"))
    return {
        "rank": old["rank"],
        "hello": _kept(hello, HELLO) if hello else None,
        "joined": _kept(joined, JOINED) if joined else None,
        "wire": {name: {"received_bytes": each["received"], "sent_bytes": each["sent"]} for name, each in wire.items()}
        if wire is not None
        else None,
        "failed": _kept(failed, ("kind", "message", "traceback")) if failed else None,
    }


def _trained(old: Json) -> Json:
    layers, training = old.get("layers"), old.get("training")
    return {
        "passes": {name: {"name": name, **_kept(each, PASS)} for name, each in old["passes"].items()},
        "layers": [_layer(each) for each in layers] if layers else None,
        "training": _training(training) if training else None,
        "notes": old.get("notes") or {},
    }


def _layer(old: Json) -> Json:
    times = {name: old.get(name) or 0.0 for name in ("forward_s", "backward_s", "communication_s")}
    return {**_kept(old, ("layer", "kind", "bytes")), **times}


def _training(old: Json) -> Json:
    return {
        "epochs": [
            {**_kept(each, EPOCH), "train_s": each["seconds"], "test_s": each.get("test_seconds")}
            for each in old["epochs"]
        ],
        "loss_steps": old["loss_steps"],
        "losses": old["losses"],
        "loss_s": old.get("loss_seconds", []),
    }


def _row(old: Json) -> Json:
    if old["kind"] == "left out":
        return {"kind": "skipped", "bytes": old["bytes"]}
    if old["kind"] == "overlap":
        names = {"exchange_s": "comm_s", "compute_s": "comp_s"}
        kept = _kept(old, ("kind", "operation", "bytes", "both_s", "progressed_s", "slices"))
        return {**kept, **{new: old[name] for new, name in names.items()}}
    kept = _kept(old, ("kind", "operation", "bytes", "messages"))
    return {**kept, "sample_s": old["seconds"], "wait_s": old["waits"]}


def _kept(old: Json, names: tuple[str, ...]) -> Json:
    return {name: old[name] for name in names if name in old}
