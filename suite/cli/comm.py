"""`stagebench comm`: measure communication alone. Heavy imports wait until the command runs."""

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stagebench.suite.cli.options import OfRun, Pythons, Retry, hosts_from, interpreters_from
from stagebench.suite.cli.output import show_json
from stagebench.suite.errors import RequestError
from stagebench.suite.text import chosen

if TYPE_CHECKING:
    from stagebench.suite.plan.collectives import Asked

WORKLOAD = "resnet50"  # its gradient tensors are measured by default
ALL = "all"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}  # binary, as the powers of 4 are
FACTOR = 4  # from one message size to the next
ITEMSIZE = 4  # every size is a multiple of it: a number of float32, two of the smaller types
LARGEST = 1 << 33  # bytes; beyond it counts no longer fit the libraries' integers


def comm(
    backend: Annotated[
        list[str] | None, typer.Option(help="Only this backend (repeatable); see `stagebench list backends`.")
    ] = None,
    op: Annotated[list[str] | None, typer.Option(help="Only this operation (repeatable), such as all-reduce.")] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="Of the numbers: float32, float16 or bfloat16 (repeatable).")
    ] = None,
    sizes: Annotated[str, typer.Option(help="LOW:HIGH in bytes, K, M or G: every power of 4 between.")] = "4:256M",
    workload: Annotated[
        list[str] | None,
        typer.Option(help=f"This network's gradient tensors, too (repeatable; `{ALL}`); alone: {WORKLOAD}'s."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, max=4096, help="On each node; 2 on one node, 1 on each of several.")
    ] = None,
    hosts: Annotated[str | None, typer.Option(help="A,B,...: one node each.")] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=4096, help="How many, where the launcher chooses the hosts.")
    ] = None,
    launcher: Annotated[str | None, typer.Option(help="Starts the ranks; default: the backend's own.")] = None,
    seconds: Annotated[float, typer.Option(min=0.0, max=600.0, help="Of samples, for each size.")] = 0.25,
    budget: Annotated[
        float, typer.Option(min=0.0, help="Seconds for an operation's sizes: larger ones are skipped. 0: no limit.")
    ] = 10.0,
    output: OfRun = None,
    python: Pythons = None,
    retry: Retry = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was measured as JSON, and nothing else.")] = False,
) -> None:
    """Measure all-reduce, broadcast, reduce-scatter, all-gather, all-to-all and point-to-point of every backend here.

    Every result is verified on every rank. Stop it at any time: the same command with -o resumes it.
    """
    from stagebench.suite.analysis.links import links
    from stagebench.suite.cli.comm_tables import show_summary
    from stagebench.suite.cli.display import Display
    from stagebench.suite.cli.measuring import conclude, warn
    from stagebench.suite.plan.collectives import collectives, offers
    from stagebench.suite.plugins import workloads
    from stagebench.suite.results.records import COMM
    from stagebench.suite.results.run_folder import RunFolder
    from stagebench.suite.session.measure import about_run, measure, run_folder
    from stagebench.suite.session.observer import Observer
    from stagebench.suite.session.resumable import Session, Settings

    offered = offers()
    names = chosen("backend", backend or [], offered)
    asked = asked_for(op, sizes, workload, ranks, hosts, launcher, seconds, nodes, dtype, budget)
    planned = [
        resolved
        for name in names
        for resolved in collectives(asked, offered[name], workloads())
        if op or (resolved.case.collective and resolved.case.collective.operation in offered[name].backend.operations)
    ]
    if not planned:
        raise RequestError(f"none of {', '.join(names)} has such an operation; see `stagebench list backends`")
    folder, observer = RunFolder(output or run_folder("comm")), Observer() if json else Display()
    session = Session(folder, planned, interpreters_from(python or []), observer, Settings(proofs=False, retry=retry))
    about = about_run(COMM, "communication", sys.argv, warn)
    outcomes = measure(session, folder, about, plan_text(names, asked), warn)
    found = list(links(folder))
    if json:
        content = {"folder": str(folder.path), "outcomes": outcomes, "links": [link.to_dict() for link in found]}
        show_json(content)
    else:
        show_summary(found)
    conclude(folder.path, outcomes, quiet=json)


def asked_for(
    op: list[str] | None,
    sizes: str,
    workload: list[str] | None,
    ranks: int | None,
    hosts: str | None,
    launcher: str | None,
    seconds: float,
    nodes: int | None = None,
    dtype: list[str] | None = None,
    budget: float = 0.0,
) -> "Asked":
    """Check the options; RequestError for an unknown name or an impossible placement."""
    from stagebench.suite.contracts.case import DTYPES, FLOAT32, OPERATIONS
    from stagebench.suite.plan.collectives import Asked
    from stagebench.suite.plugins import launchers, workloads
    from stagebench.suite.processes.hosts import here

    known, placed = workloads(), hosts_from(hosts)
    if launcher is not None:
        chosen("launcher", [launcher], launchers())
    asked = [name for name in workload or [] if name != ALL]
    networks = chosen("workload", asked, known) if asked else []
    if ALL in (workload or []):
        networks = list(known)
    elif not op and not workload:
        networks = [WORKLOAD] if WORKLOAD in known else []
    if nodes and placed and nodes != len(placed):
        raise RequestError(
            f"--nodes {nodes}, but --hosts {','.join(placed)} names {len(placed)}; "
            "name one host a node, or leave --nodes out"
        )
    count = len(placed) or nodes or 1
    each = ranks or (1 if count > 1 else 2)
    if count * each == 1:
        raise RequestError(
            "--ranks 1 on one node is one rank altogether, which has no other rank to exchange with; "
            "take --ranks 2 or more, or several nodes by --hosts A,B or --nodes 2"
        )
    return Asked(
        # With --workload alone, only the networks' tensors are measured.
        operations=tuple(chosen("operation", op or [], OPERATIONS) if op or not workload else ()),
        sizes=sizes_from(sizes),
        workloads=tuple(networks),
        seconds=seconds,
        nodes=count,
        ranks=each,
        hosts=() if len(placed) == 1 and here(placed[0]) else tuple(placed),
        launcher=launcher,
        budget=budget,
        dtypes=tuple(chosen("type of numbers", dtype or [FLOAT32], DTYPES)),
    )


def sizes_from(option: str) -> tuple[int, ...]:
    """Read "LOW:HIGH" as low, 4 x low, ... up to high, in bytes, and "SIZE" as one size.

    RequestError for another form, a size that is no multiple of 4 bytes, or HIGH below LOW.
    """
    ends = []
    for text in option.split(":", 1):
        match = re.fullmatch(r"(\d+)\s*([KMG]?)I?B?", text.strip().upper())
        size = int(match.group(1)) * UNITS[match.group(2)] if match else 0
        if not 0 < size <= LARGEST or size % ITEMSIZE:
            raise RequestError(
                f"--sizes {option!r}: {text!r} is no message size; write bytes in multiples of {ITEMSIZE} with K, M or "
                "G, at most 8G: 4:64M, 1K:1M, 16M"
            )
        ends.append(size)
    if ends[-1] < ends[0]:
        raise RequestError(f"--sizes {option!r} ends below its beginning; write LOW:HIGH, such as 4:64M")
    sizes = [ends[0]]
    while sizes[-1] * FACTOR <= ends[-1]:
        sizes.append(sizes[-1] * FACTOR)
    return tuple(sizes)


def plan_text(backends: list[str], asked: "Asked") -> str:
    """Write the request as TOML: a run folder is resumed only with the request it was begun with."""
    import json
    from dataclasses import asdict

    values = {"backends": backends, **asdict(asked)}
    return "[comm]\n" + "".join(
        f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value is not None
    )
