"""The figures of `stagebench comm` as tables: times and rates by message size, the fitted links, the overlap."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stagebench.suite.analysis.comparability import meaning
from stagebench.suite.analysis.links import LEAST, SIMULATED, Link, Point, by_mark, written
from stagebench.suite.cli.output import say_wrapped, show_rows
from stagebench.suite.text import significant

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = ("size", "messages", "µs", "5 %", "95 %", "MB/s", "bus MB/s", "samples", "late")
UNDETERMINED = "not determined"
KINDS = {"single": "", "row": " in a row", "together": " together"}


def show_points(
    link: Link, columns: Sequence[str] = COLUMNS, title: str = "", console: "Console | None" = None
) -> None:
    """Print a row for each message size; MB are 10^6 bytes."""
    rows = [dict(zip(COLUMNS, cells(point), strict=True)) for point in link.points]
    if rows:
        show_rows(rows, columns, title, console=console)


def cells(point: Point) -> list[str]:
    """Return a row of the table; cells without a figure are empty."""
    return [
        _size(point),
        str(point.messages),
        *(_scaled(seconds, 1e6) for seconds in (point.seconds, point.low, point.high)),
        *(_scaled(rate, 1e-6) for rate in (point.algorithm_bandwidth, point.bus_bandwidth)),
        str(point.samples),
        "" if point.clock_error is None else str(point.late),
    ]


def _size(point: Point) -> str:
    return written(point.bytes) + KINDS.get(point.kind, "")


def _scaled(value: float | None, scale: float) -> str:
    return "" if value is None else significant(value * scale)


def skipped(link: Link) -> str:
    """Return the sizes that were skipped, with the option that measures them; "" if none were."""
    if not link.skipped:
        return ""
    sizes = ", ".join(map(written, link.skipped))
    return f"skipped: {sizes}, beyond the budget of {link.collective.budget:g} s; --budget 0 measures all"


def show_summary(links: Sequence[Link]) -> None:
    """Print latency and bandwidth of every link, with the fit's errors, and the share that can be hidden."""
    fits = [_fit_row(link) for link in links if link.fit and not link.network]
    if fits:
        show_rows(fits, tuple(fits[0]), "latency and bandwidth, fitted")
    rows = [
        {
            "backend": link.collective.backend,
            "size": written(overlap.bytes),
            "communication ms": _scaled(overlap.comm, 1e3),
            "computation ms": _scaled(overlap.comp, 1e3),
            "hidden %": _share(overlap.hidden),
            "hidden with progress calls %": _share(overlap.hidden_with_progress),
        }
        for link in links
        for overlap in link.overlaps
    ]
    if rows:
        show_rows(rows, tuple(rows[0]), "all-reduce beside computation")
    late = [f"{link.case.label}: {', '.join(map(_size, link.without_figure))}" for link in links if link.without_figure]
    if late:
        say_wrapped(f"no figure, since fewer than {LEAST} samples began in time on every rank: {'; '.join(late)}.")
        say_wrapped("Measure longer (--seconds), or with no more ranks than free cores.")
    for mark, marked in by_mark(links).items():
        say_wrapped(f"{mark}: {', '.join(link.case.label for link in marked)}: {meaning(mark)}.")
    if any(link.simulated for link in links):
        say_wrapped(f"{SIMULATED}.")


def _share(hidden: float | None) -> str:
    return UNDETERMINED if hidden is None else f"{hidden:.0%}"


def _fit_row(link: Link) -> dict[str, Any]:
    fit, bus = link.fit, link.bus_limit
    assert fit is not None
    latency, bandwidth = fit.tells_latency, fit.tells_bandwidth
    return {
        "backend": link.collective.backend,
        "operation": link.collective.operation + link.collective.of_dtype + link.marked,
        "alpha us": significant(fit.alpha * 1e6) if latency else UNDETERMINED,
        "+-": significant(fit.alpha_error * 1e6) if latency else "",
        "1/beta MB/s": significant(1e-6 / fit.beta) if bandwidth else UNDETERMINED,
        "+- %": f"{fit.beta_error / fit.beta:.1%}" if bandwidth else "",
        "bus MB/s": significant(bus / 1e6) if bus else "",
        "fit error %": f"{fit.error:.1%}",
    }
