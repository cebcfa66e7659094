"""A simulated run of `stagebench comm`: exact lines, so that a fit is known beforehand."""

from pathlib import Path
from typing import Any

from stagebench.suite.contracts.case import Case, Collective, Placement
from stagebench.suite.plan.collectives import gradient_tensors
from stagebench.suite.plugins import workloads
from stagebench.suite.results.records import COMM, About, CaseEntry, Host, Record
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.messages import Machine
from tests.support.sent import hello, joined

ALPHA, BETA = 10e-6, 1e-9
SIZES = [4**power for power in range(1, 9)]
COUNTS = tuple(size // 4 for size in SIZES)
TWO = Placement(ranks_per_node=2)


def collective(
    backend: str,
    operation: str = "all-reduce",
    place: Placement = TWO,
    seconds: float = 0.0,
    counts: tuple[int, ...] = (1,),
    network: str = "",
    **more: Any,
) -> Case:
    """A case as a request's; `network` has the gradient tensors that `tensors` names."""
    one = Collective(backend, operation, counts, seconds, **more)
    return Case("any", "any", network, place, passes=(), sampling=Sampling(processes=1), collective=one)


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


def exchanged(case: Case, ranks: Any = (), outcome: str = "ok", reason: str = "", **more: Any) -> Record:
    """A record of a case, of which all else is made up."""
    given = {"case_id": case.id, "case": case, "repeat": 0, "outcome": outcome, "reason": reason, "ranks": ranks}
    given |= {"started": "2026-11-20T12:00:00+00:00", "seconds": 1.0, "bundle": "b"}
    given |= {"interpreter": {"path": "/python", "origin": "here", "version": "3.11.7"}}
    return Record(**{**given, "load": {"before": (0.0, 0.0, 0.0), "after": (0.0, 0.0, 0.0)}, **more})


def communication(path: Path, others: str = "") -> RunFolder:
    """Two operations and a network's tensors over one backend; another one crashed; a third is not here.

    Words of `others` in the processor's and the host's name and in a reason.
    """
    found = RunFolder(path)
    found.create(About(kind=COMM, created="2026-11-20T12:00:00+00:00", command=("stagebench", "comm")))
    found.write_host(Host(host="a", machine=Machine(cpu=f"A <fast> one{others}"), cores=2))
    names, numbers = zip(*gradient_tensors(workloads()["mnist_small"]), strict=True)
    to_and_fro = [row(size, operation="point-to-point") for size in SIZES]
    tensors = collective("wire", "all-reduce", TWO, 0.1, numbers, "mnist_small", tensors=names)
    measured: list[tuple[Case, list[dict[str, Any]], str, str]] = [
        (collective("wire", "all-reduce", TWO, 0.1, COUNTS), [*map(row, SIZES), overlap(65536)], "ok", ""),
        (collective("wire", "point-to-point", TWO, 0.1, COUNTS), to_and_fro, "ok", ""),
        (tensors, tensor_rows("mnist_small"), "ok", ""),
        (collective("cut", "broadcast", TWO, 0.1), [], "crash", f"rank 1: the <wire> was cut{others}"),
    ]
    cases = []
    for case, rows, outcome, reason in measured:
        met = joined(world=2, transport="copper")
        ranks = [
            {"rank": rank, "hello": hello(host=f"a{others}"), "joined": met, "exchanges": rows} for rank in range(2)
        ]
        found.write_record(exchanged(case, ranks, outcome, reason))
        cases.append(CaseEntry(id=case.id, case=case))
    absent = collective("absent", "broadcast", TWO, 0.1)
    cases.append(CaseEntry(id=absent.id, case=absent, outcome="unavailable", reason="tox run -e absent"))
    found.write_cases(cases)
    return found
