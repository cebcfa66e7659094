"""What files of formats 1 and 2 become, value by value, whatever the stored runs happen to hold."""

from pathlib import Path
from typing import Any

import pytest

from suite.errors import StoreError
from suite.results import older

PASS = {"samples": 8, "steady": True, "warmup_s": [], "step_s": [1.0], "wall_s": 1.0, "loss": 2.0}
EPOCH = {"samples": 8, "steps": 2, "accuracy": 0.5, "loss": 2.0}
FAILED = {"kind": "crash", "message": "no", "traceback": "T"}
LEARNT = {"loss_steps": [0], "losses": [2.0]}
NOTHING: dict[str, Any] = dict.fromkeys(("hello", "joined", "wire", "failed"))
SAME = {
    "case_id": "a",
    "repeat": 0,
    "outcome": "ok",
    "reason": "",
    "started": "now",
    "seconds": 1.0,
    "bundle": "b",
    "load": {"before": [0, 0, 0], "after": [0, 0, 0]},
}
PYTHON = {"path": "p", "origin": "o", "version": "3", "packages": {}}
OLD = {**SAME, "case": {"optimiser": "adam", "momentum": 0.9}, "interpreter": {**PYTHON, "x": 1}, "ranks": []}
NEW = {
    **SAME,
    "case": {"optimiser": "adam", "momentum": 0.0, "beta1": 0.9},
    "interpreter": PYTHON,
    "ranks": [],
    "method": 1,
    "evidence": None,
}


@pytest.mark.parametrize(
    ("upgrade", "old", "new"),
    [
        (
            older.rank,
            {
                "rank": 1,
                "hello": {"host": "a", "pid": 7, "x": 1},
                "joined": {"rank": 1, "world": 2, "x": 1},
                "wire": {"eth0": {"received": 3, "sent": 4}},
                "failed": {**FAILED, "x": 1},
                "passes": {"native": {**PASS, "x": 1}},
                "layers": [{"layer": "fc", "kind": "dense", "bytes": 8, "forward_s": 0.5, "backward_s": None}],
                "training": {**LEARNT, "epochs": [{**EPOCH, "seconds": 1.5, "test_seconds": 0.5}], "loss_seconds": [3]},
                "notes": {"reader": "one"},
            },
            {
                "rank": 1,
                "hello": {"host": "a", "pid": 7},
                "joined": {"rank": 1, "world": 2},
                "wire": {"eth0": {"received_bytes": 3, "sent_bytes": 4}},
                "failed": FAILED,
                "passes": {"native": {"name": "native", **PASS}},
                "layers": [
                    {
                        "layer": "fc",
                        "kind": "dense",
                        "bytes": 8,
                        "forward_s": 0.5,
                        "backward_s": 0.0,
                        "communication_s": 0.0,
                    }
                ],
                "training": {**LEARNT, "epochs": [{**EPOCH, "train_s": 1.5, "test_s": 0.5}], "loss_s": [3]},
                "notes": {"reader": "one"},
            },
        ),
        (
            older.rank,
            {"rank": 0, "passes": {}, "training": {**LEARNT, "epochs": [{**EPOCH, "seconds": 1.5}]}},
            {
                "rank": 0,
                **NOTHING,
                "passes": {},
                "layers": None,
                "notes": {},
                "training": {**LEARNT, "epochs": [{**EPOCH, "train_s": 1.5, "test_s": None}], "loss_s": []},
            },
        ),
        (
            older.rank,
            {"rank": 0, "passes": {}},
            {"rank": 0, **NOTHING, "passes": {}, "layers": None, "training": None, "notes": {}},
        ),
        (
            older.comm_rank,
            {
                "rank": 0,
                "rows": [
                    {"kind": "left out", "bytes": [16], "x": 1},
                    {
                        "kind": "overlap",
                        "operation": "all-reduce",
                        "bytes": 8,
                        "slices": 4,
                        "comm_s": [1],
                        "comp_s": [2],
                        "both_s": [3],
                        "progressed_s": [4],
                    },
                    {
                        "kind": "single",
                        "operation": "all-reduce",
                        "bytes": 8,
                        "messages": 1,
                        "seconds": [1],
                        "waits": [2],
                    },
                ],
            },
            {
                "rank": 0,
                **NOTHING,
                "rows": [
                    {"kind": "skipped", "bytes": [16]},
                    {
                        "kind": "overlap",
                        "operation": "all-reduce",
                        "bytes": 8,
                        "slices": 4,
                        "exchange_s": [1],
                        "compute_s": [2],
                        "both_s": [3],
                        "progressed_s": [4],
                    },
                    {
                        "kind": "single",
                        "operation": "all-reduce",
                        "bytes": 8,
                        "messages": 1,
                        "sample_s": [1],
                        "wait_s": [2],
                    },
                ],
            },
        ),
        (older.record, OLD, {**NEW, "proof": None, "proof_reason": ""}),
        (
            older.record,
            {**OLD, "proof": "key", "proof_reason": "why", "evidence": {"oom_kills": 1}},
            {**NEW, "proof": "key", "proof_reason": "why", "evidence": {"oom_kills": 1}},
        ),
        (older.comm_record, OLD, NEW),
        (
            older.about,
            {"kind": "comm", "stagebench": "0.1", "created": "now", "command": ["a"], "plan": "p", "x": 1},
            {"kind": "comm", "stagebench": "0.1", "created": "now", "command": ["a"], "plan": "p", "method": 1},
        ),
        (
            older.cases,
            {"scale": "small", "cases": [{"id": "a", "outcome": None, "reason": "", "case": {}, "x": 1}]},
            {"scale": "small", "cases": [{"id": "a", "outcome": None, "reason": "", "case": {}}]},
        ),
        (older.cases, {"cases": []}, {"scale": None, "cases": []}),
        (older.case, {"optimiser": "adam", "beta1": 0.8}, {"optimiser": "adam", "beta1": 0.8}),
        (older.host, {"host": "a", "cpu": "b", "x": 1}, {"host": "a", "cpu": "b"}),
        (older.proof, {"key": None, "reason": None, "macs": 1}, {"key": None, "macs": 1}),
    ],
)
def test_a_file_of_format_1_has_today_s_names(upgrade: older.Upgrade, old: older.Json, new: older.Json) -> None:
    assert upgrade(old) == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {
                "exit_codes": {"0": 1},
                "stopped": {"why": "time", "rank": 1, "seconds": 9.0},
                "limits": {"seconds": 1.0, "silence": 2.0, "joining": None},
                "lost_logins": [{"host": "a", "code": 255, "time": 3.0, "x": 1}],
                "engine": [{"type": "begun"}, {"type": "other"}, {"type": "failed"}],
            },
            {
                "exit_codes": {"0": 1},
                "stopped": {"why": "time", "rank": 1, "limit_s": 9.0},
                "limits": {"total_s": 1.0, "silence_s": 2.0, "joining_s": None},
                "lost_logins": [{"host": "a", "code": 255, "time_s": 3.0}],
                "engine": [{"type": "begun"}, {"type": "failed"}],
            },
        ),
        ({"oom_kills": 1}, {"oom_kills": 1, "stopped": None, "limits": None, "lost_logins": [], "engine": []}),
    ],
)
def test_evidence_of_format_2_gets_its_units(old: older.Json, new: older.Json) -> None:
    found = older.upgraded(2, older.record, {"format": 2, "evidence": old}, Path("x"), "")
    assert found == {"evidence": new}


def test_a_file_of_format_3_loses_its_number_and_one_that_is_not_whole_is_refused() -> None:
    assert older.upgraded(3, older.record, {"format": 3, "case": {}}, Path("x"), "") == {"case": {}}
    with pytest.raises(StoreError) as refused:
        older.upgraded(1, older.record, {}, Path("x"), "mend it")
    assert str(refused.value) == "x is not a whole file of format 1 (KeyError: 'interpreter'); mend it"
