"""`stagebench check-hosts`: whether hosts compute the same, and which of them, or of their links, is slow.

Heavy imports wait until the command runs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stagebench.suite.cli.options import Json, Pythons, hosts_from, interpreters_from
from stagebench.suite.cli.output import say, show_json, show_rows
from stagebench.suite.errors import RequestError, StagebenchError, Unavailable
from stagebench.suite.text import significant

if TYPE_CHECKING:
    from stagebench.suite.plan.collectives import Offer
    from stagebench.suite.processes.interpreters import Interpreter
    from stagebench.suite.processes.launch import Launch
    from stagebench.suite.proofs.side_by_side import Proving
    from stagebench.suite.worker.job import Task
    from stagebench.suite.worker.messages import Message

WORKLOAD, SAMPLES = "mnist_small", 32  # the training of every host: three updates of this network, in float64
SIZES = (4, 1 << 22)  # bytes of a message: for the latency, for the bandwidth
SPEED_S, LINK_S = 2.0, 0.2  # seconds of samples
LIMIT_S = 45.0  # for a host, or a pair of hosts
LINKS_S = 120.0  # for all pairs: a further round begins only before
SLOWER, SCATTERS = 0.1, 3.0  # from the others' median: a share of it at least, and standard deviations of the others
ROUNDING = 1e-6  # relative distance of results that unlike processors may have
OF_HOST = {"samples/s": 1, "Gflop/s": 1, "GB/s": 1}  # figures; 1: more is better
OF_LINK = {"µs": -1, "MB/s": 1}


@dataclass
class Checked:
    """A host, or a pair of hosts."""

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    cpu: str = ""
    fingerprint: str = ""  # of the training's results; "": none
    problems: list[str] = field(default_factory=list)


def check_hosts(
    hosts: Annotated[str, typer.Option(help="A,B,...: the hosts, reached by logins without a password.")],
    backend: Annotated[
        str | None, typer.Option(help="Measures the links; default: the first one that is installed here.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder that all hosts share.")] = None,
    python: Pythons = None,
    as_json: Json = False,
) -> None:
    """Train the same on every host, and compare results to the bit, speeds, copies of memory, and each pair's link.

    It takes five minutes at most. Exit code 1 when a host computes wrongly, or a host or a link is slower than others.
    """
    from stagebench.suite.plugins import oracle
    from stagebench.suite.processes.interpreters import find
    from stagebench.suite.proofs.side_by_side import ALL, NOTHING, side_by_side
    from stagebench.suite.session.measure import run_folder

    names, interpreters = hosts_from(hosts), interpreters_from(python or [])
    interpreter, offer = find(oracle(), interpreters), _offer(backend, interpreters) if len(names) > 1 else None
    folder = (output or run_folder("check-hosts")).resolve()
    working = [(NOTHING, _host(name, interpreter, folder / name)) for name in names]
    rows = sorted(side_by_side(working, ALL), key=lambda row: names.index(row.name))
    name_wrong(rows, {row.name: folder / row.name / "results" for row in rows})
    name_slow(rows, OF_HOST)
    links: list[Checked] = []
    reached = [row.name for row in rows if row.figures]
    began, left = monotonic(), 0
    for pairs in rounds(reached):
        if offer is None or monotonic() - began > LINKS_S:
            left += len(pairs)
            continue
        working_links = [(NOTHING, _link(pair, folder / "-".join(pair), offer, interpreters)) for pair in pairs]
        links += side_by_side(working_links, ALL)
    name_slow(links, OF_LINK)
    if as_json:
        show_json({"hosts": [vars(row) for row in rows], "links": [vars(row) for row in links], "links_left_out": left})
    else:
        show_rows(_cells(rows, OF_HOST), ("host", "processor", "results", *OF_HOST, "verdict"), "Hosts")
        if links:
            title = f"Links, by {offer.backend.name}" if offer else ""
            show_rows(_cells(links, OF_LINK), ("host", *OF_LINK, "verdict"), title)
        if left:
            say(f"{left} pairs were left out: their time was up")
    if any(row.problems for row in (*rows, *links)):
        raise typer.Exit(1)


def _cells(rows: Sequence[Checked], figures: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "host": row.name,
            "processor": row.cpu,
            "results": row.fingerprint,
            **{name: significant(row.figures[name]) for name in figures if name in row.figures},
            "verdict": "; ".join(row.problems) or "ok",
        }
        for row in rows
    ]


def _offer(backend: str | None, interpreters: Mapping[str, str]) -> "Offer":
    """Return the backend that measures links; RequestError if it is not there, or none is."""
    from stagebench.suite.plan.collectives import offers
    from stagebench.suite.processes.interpreters import find
    from stagebench.suite.text import chosen

    offered = offers()
    names = chosen("backend", [backend] if backend else [], offered)
    for name in names:
        able = offered[name].backend
        with suppress(Unavailable):
            if able.device == "cpu" and "point-to-point" in able.operations:
                find(offered[name].needs, interpreters)
                return offered[name]
    raise RequestError(
        f"no backend of {', '.join(names)} can measure a link between hosts here; `stagebench doctor` says how to get "
        "one"
    )


def _host(host: str, interpreter: "Interpreter", folder: Path) -> "Proving[Checked]":
    """Train on a host, then measure its speed and its memory."""
    from stagebench.suite.contracts.case import Placement
    from stagebench.suite.contracts.launcher import starters
    from stagebench.suite.plugin_errors import ask
    from stagebench.suite.plugins import launchers, oracle, workloads
    from stagebench.suite.processes.attempt import Limits
    from stagebench.suite.processes.single import single
    from stagebench.suite.proofs.oracles import digest
    from stagebench.suite.worker.case_parts import Input, Sampling
    from stagebench.suite.worker.job import MakeOracle, Measure
    from stagebench.suite.worker.messages import Hello, Pass, Peaks, of_type
    from stagebench.suite.worker.pass_kinds import NATIVE

    starting = (launchers()[name] for name in starters(oracle().capabilities.strategies[0], launchers()))
    by_login = next(one.name for one in starting if one.several_hosts)
    row, placement = Checked(host), Placement(launcher=by_login, hosts=(host,))
    with noted(row):
        (folder / "results").mkdir(parents=True, exist_ok=True)
        limits = Limits(LIMIT_S, LIMIT_S)
        launch = single(
            oracle(), workloads()[WORKLOAD], interpreter, folder, limits, batch=SAMPLES, placement=placement
        )
        if missing := ask(launch.launcher, "missing", placement, interpreter.path):
            raise Unavailable(missing)
        graph, sampling = launch.workload.graph(), Sampling(seconds=SPEED_S, processes=1)
        yield from _messages(launch, folder / "trained", MakeOracle(graph, str(folder / "results"), SAMPLES))
        row.fingerprint = digest(folder / "results")[:8]
        measure = Measure(graph, [NATIVE], sampling, Input(), peaks=True)
        sent = (yield from _messages(launch, folder / "timed", measure))[0]
        (hello,), (native,), (peaks,) = of_type(Hello, sent), of_type(Pass, sent), of_type(Peaks, sent)
        row.cpu = (hello.machine and hello.machine.cpu) or ""
        speeds = native.samples / native.wall_s, peaks.flop_per_s / 1e9, peaks.bytes_per_s / 1e9
        row.figures = dict(zip(OF_HOST, speeds, strict=True))
    return row


def _link(pair: tuple[str, str], folder: Path, offer: "Offer", interpreters: dict[str, str]) -> "Proving[Checked]":
    """Measure messages from one host to the other and back."""
    from stagebench.suite.analysis.links import point
    from stagebench.suite.plan.collectives import Asked, collectives
    from stagebench.suite.plugins import workloads
    from stagebench.suite.processes.jobs import exchanging
    from stagebench.suite.session.cases import launch_of_case
    from stagebench.suite.worker.messages import ExchangeTimes, of_type

    row = Checked(" ".join(pair))
    asked = Asked(("point-to-point",), SIZES, (), LINK_S, ranks=1, hosts=pair, nodes=2)
    ((case, _, refused),) = collectives(asked, offer, workloads())
    with noted(row):
        if refused or case.collective is None:
            raise Unavailable(refused)
        launch = launch_of_case(case.on(time_limit=LIMIT_S), interpreters, folder / "bundle")
        messages = yield from _messages(launch, folder / "sent", exchanging(case.collective, launch.adapter))
        small, large = map(point, zip(*(of_type(ExchangeTimes, sent) for sent in messages.values()), strict=True))
        if not small.seconds or not large.bus_bandwidth:
            raise Unavailable("too few messages began in time to give a figure")
        row.figures = {"µs": 1e6 * small.seconds, "MB/s": large.bus_bandwidth / 1e6}
    return row


@contextmanager
def noted(row: Checked) -> Iterator[None]:
    """Note an error that a measurement may meet as a problem of its host or link."""
    try:
        yield
    except (StagebenchError, OSError) as error:
        row.problems.append(str(error))


def _messages(launch: "Launch", folder: Path, task: "Task") -> "Proving[dict[int, list[Message]]]":
    """Run a task in a new folder; return what its ranks sent."""
    folder.mkdir(parents=True, exist_ok=True)
    attempt = yield from launch.running(folder, task)
    if attempt.outcome != "ok":
        raise Unavailable(attempt.reason)
    return attempt.messages


def rounds(hosts: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield every pair once, in rounds in which each host has one partner at most."""
    ring = [*hosts, *([""] * (len(hosts) % 2))]
    for _ in ring[1:]:
        half = len(ring) // 2
        yield [pair for pair in zip(ring[:half], reversed(ring[half:]), strict=True) if all(pair)]
        ring = [ring[0], ring[-1], *ring[1:-1]]


def name_wrong(rows: Sequence[Checked], results: Mapping[str, Path]) -> None:
    """Note a problem of each host whose results are not those of most hosts, to the bit.

    Processors of other models may round otherwise, by a little.
    """
    known = [row for row in rows if row.fingerprint]
    counts = Counter(row.fingerprint for row in known)
    most = max(counts, key=counts.__getitem__, default="")
    right = [row for row in known if row.fingerprint == most]
    tie = sum(count == counts[most] for count in counts.values()) > 1
    others = ", ".join(row.name for row in right)
    for row in known:
        off = distance(results[row.name], results[right[0].name])
        rounds_otherwise = off <= ROUNDING and row.cpu not in {other.cpu for other in right}
        if row.fingerprint == most or rounds_otherwise:
            continue
        row.problems.append(f"{'one of the two ' if tie else ''}COMPUTES WRONGLY: {off:.1e} from {others}")
        if tie and not right[0].problems:
            right[0].problems.append(f"one of the two COMPUTES WRONGLY: {off:.1e} from {row.name}")


def distance(ours: Path, theirs: Path) -> float:
    """Return the largest relative distance of two trainings' tensors."""
    import numpy as np

    distances = []
    for path in sorted(theirs.glob("*.npy")):
        right, here = np.load(path).astype(float), np.load(ours / path.name).astype(float)
        distances.append(float(np.linalg.norm(here - right) / (np.linalg.norm(right) or 1.0)))
    return max(distances)


def name_slow(rows: Sequence[Checked], figures: Mapping[str, int]) -> None:
    """Note a problem for each figure that is worse than those of the others, with their scatter.

    The scatter is the standard deviation as of the median absolute deviation, over the median.
    """
    for name, sign in figures.items():
        known = [row for row in rows if name in row.figures]
        for row in known:
            others = [other.figures[name] for other in known if other is not row]
            if not others:
                continue
            usual = median(others)
            scatter = 1.4826 * median(abs(value - usual) for value in others) / usual
            worse = sign * (1 - row.figures[name] / usual)
            if worse > max(SLOWER, SCATTERS * scatter):
                row.problems.append(
                    f"slow: {significant(row.figures[name])} {name}, the others {significant(usual)} "
                    f"(they scatter by {scatter:.1%})"
                )
