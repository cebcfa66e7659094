"""A simulated run of `stagebench comm`: exact lines, so that a fit is known beforehand."""

from pathlib import Path
from typing import Any

from suite.comm.cases import CommCase, gradient_tensors
from suite.comm.records import KIND, CommEntry, CommFolder, CommRecord, Tensor
from suite.contracts.case import Placement
from suite.plugins import workloads
from suite.results.records import About, Host
from suite.worker.messages import Machine
from tests.support.sent import hello, joined

ALPHA, BETA = 10e-6, 1e-9
SIZES = [4**power for power in range(1, 9)]
COUNTS = tuple(size // 4 for size in SIZES)
TWO = Placement(ranks_per_node=2)


def seconds(size: int) -> list[float]:
    return [ALPHA + BETA * size] * 5


def row(size: int, kind: str = "single", operation: str = "all-reduce", messages: int = 1) -> dict[str, Any]:
    late = [] if operation == "point-to-point" else [0.0] * 5
    found = {"kind": kind, "operation": operation, "bytes": size, "messages": messages, "late_s": late}
    return {**found, "sample_s": seconds(size)}


def overlap(size: int) -> dict[str, Any]:
    samples = {"exchange_s": [1e-3] * 5, "compute_s": [1e-3] * 5, "both_s": [1.5e-3] * 5, "progressed_s": [1.1e-3] * 5}
    return {"operation": "all-reduce", "bytes": size, "slices": 3, **samples}


def tensor_rows(name: str) -> list[dict[str, Any]]:
    counts = [count for _, count in gradient_tensors(workloads()[name])]
    whole = 4 * sum(counts)
    ways = [row(whole, "row", messages=len(counts)), row(whole, "together", messages=len(counts)), row(whole)]
    return [row(4 * count) for count in sorted(set(counts))] + ways


def communication(path: Path, others: str = "") -> CommFolder:
    """Two operations and a network's tensors over one backend; another one crashed; a third is not here.

    Words of `others` in the processor's and the host's name and in a reason.
    """
    found = CommFolder(path)
    found.create(About(kind=KIND, created="2026-11-20T12:00:00+00:00", command=("stagebench", "comm")))
    found.write_host(Host(host="a", machine=Machine(cpu=f"A <fast> one{others}"), cores=2))
    digest = workloads()["mnist_small"].graph().digest
    measured: list[tuple[CommCase, list[dict[str, Any]], str, str]] = [
        (CommCase("wire", "all-reduce", TWO, 0.1, COUNTS), [row(size) for size in SIZES] + [overlap(65536)], "ok", ""),
        (
            CommCase("wire", "point-to-point", TWO, 0.1, COUNTS),
            [row(size, operation="point-to-point") for size in SIZES],
            "ok",
            "",
        ),
        (
            CommCase("wire", "all-reduce", TWO, 0.1, workload="mnist_small", graph_digest=digest),
            tensor_rows("mnist_small"),
            "ok",
            "",
        ),
        (CommCase("cut", "broadcast", TWO, 0.1, (1,)), [], "crash", f"rank 1: the <wire> was cut{others}"),
    ]
    named = gradient_tensors(workloads()["mnist_small"])
    tensors = [Tensor(name=name, numbers=numbers) for name, numbers in named]
    cases = []
    for case, rows, outcome, reason in measured:
        met = joined(world=2, transport="copper")
        ranks = [{"rank": rank, "hello": hello(host=f"a{others}"), "joined": met, "rows": rows} for rank in range(2)]
        found.write_record(
            CommRecord(
                case_id=case.id,
                case=case,
                repeat=0,
                outcome=outcome,
                reason=reason,
                ranks=ranks,
                tensors=tensors if case.workload else None,
                started="2026-11-20T12:00:00+00:00",
                seconds=1.0,
                bundle="b",
                interpreter={"path": "/python", "origin": "here", "version": "3.11.7"},
                load={"before": (0.0, 0.0, 0.0), "after": (0.0, 0.0, 0.0)},
            )
        )
        cases.append(CommEntry(id=case.id, case=case))
    absent = CommCase("absent", "broadcast", TWO, 0.1, (1,))
    cases.append(CommEntry(id=absent.id, case=absent, outcome="unavailable", reason="tox run -e absent"))
    found.write_cases(cases)
    return found
