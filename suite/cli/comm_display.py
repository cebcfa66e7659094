"""What a person sees of `stagebench comm`: a table a case, growing as sizes are measured; plain lines when piped."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from suite.analysis.comparability import meaning
from suite.analysis.links import LEAST, SIMULATED, Link, Point, by_mark, point
from suite.cli.estimate import Estimate
from suite.cli.formatting import counted, duration, significant
from suite.cli.say import progress, say
from suite.cli.tables import show
from suite.comm.cases import CommCase
from suite.comm.records import CommRecord, ExchangeTimes, SkippedSizes, Times, comm_row
from suite.comm.sizes import written
from suite.groups import Refused, once_per_reason
from suite.plain import without_codes
from suite.session.observer import Observer
from suite.worker.messages import Message

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

COLUMNS = ("size", "messages", "µs", "5 %", "95 %", "MB/s", "bus MB/s", "samples", "late")
WIDTH = 11
UNDETERMINED = "not determined"
KINDS = {"single": "", "row": " in a row", "together": " together"}


def display() -> Observer[CommCase, CommRecord]:
    return LiveTables() if sys.stdout.isatty() else PlainLines()


def cells(found: Point) -> list[str]:
    """One row of the table; MB are 10^6 bytes. Without a figure its cells are empty."""
    times = [_scaled(seconds, 1e6) for seconds in (found.seconds, found.low, found.high)]
    rates = [_scaled(rate, 1e-6) for rate in (found.algorithm_bandwidth, found.bus_bandwidth)]
    return [
        _size(found),
        str(found.messages),
        *times,
        *rates,
        str(found.samples),
        "" if found.clock_error is None else str(found.late),
    ]


def _size(found: Point) -> str:
    return written(found.bytes) + KINDS.get(found.kind, "")


def _scaled(value: float | None, scale: float) -> str:
    return "" if value is None else significant(value * scale)


def without(case: CommCase, sizes: Sequence[int]) -> str:
    """The sizes that were skipped, and how to measure them."""
    beyond = ", ".join(map(written, sizes))
    return f"skipped: {beyond}, beyond the budget of {case.budget:g} s; --budget 0 measures all"


class Gathering(Observer[CommCase, CommRecord]):
    """Puts the ranks' rows together; a subclass shows each point as soon as every rank has sent it."""

    def __init__(self) -> None:
        self._rows: dict[int, list[Times]] = defaultdict(list)
        self._shown = 0
        self._estimate = Estimate()
        self._refused: list[Refused] = []

    def refused(self, case: CommCase, outcome: str, reason: str) -> None:
        """Kept until `begin`: many cases may lack the same."""
        self._refused.append(Refused(case.label, case.backend, outcome, reason))

    def begin(self, cases: list[CommCase], processes: int, done: int) -> None:
        for one in once_per_reason(self._refused):
            self.unmeasured(one)
        self._estimate.begin(processes, done)

    def unmeasured(self, refused: Refused) -> None:
        """What will not be measured, once for a reason."""

    def started(self, case: CommCase, repeat: int) -> None:
        """Nothing has been sent yet."""
        self._rows.clear()
        self._shown = 0
        self._estimate.started(case, repeat)

    def finished(self, case: CommCase, record: CommRecord) -> None:
        self._estimate.finished(case)

    def title(self, case: CommCase) -> str:
        """What is measured, and which of the cases it is: [3/24, about 4:10 left]."""
        left, number = self._estimate.left, self._estimate.done + 1
        about = f", about {duration(left)} left" if left else ""
        return without_codes(f"[{number}/{self._estimate.processes}{about}] {case.label}, {case.placement.launcher}")

    def message(self, case: CommCase, rank: int, message: Message) -> None:
        """Rows come in the same order from every rank."""
        row = comm_row(message)
        if row is None:
            return
        self._rows[rank].append(row)
        while len(self._rows) == case.placement.ranks and min(map(len, self._rows.values())) > self._shown:
            rows = [self._rows[rank][self._shown] for rank in sorted(self._rows)]
            self._shown += 1
            exchanges = [row for row in rows if isinstance(row, ExchangeTimes)]
            if isinstance(rows[0], SkippedSizes):
                self.skipped(case, without(case, rows[0].bytes))
            elif exchanges:
                self.measured(case, point(exchanges))

    def measured(self, case: CommCase, found: Point) -> None:
        """A point is there."""

    def skipped(self, case: CommCase, words: str) -> None:
        """The budget is over."""


class PlainLines(Gathering):
    """A line a point, as soon as it is there."""

    def unmeasured(self, refused: Refused) -> None:
        progress(f"{refused.outcome}: {refused.label}: {refused.reason}")

    def begin(self, cases: list[CommCase], processes: int, done: int) -> None:
        super().begin(cases, processes, done)
        progress(counted(len(cases), "case") + (f", {done} of them measured before" if done else ""))

    def started(self, case: CommCase, repeat: int) -> None:
        super().started(case, repeat)
        progress(self.title(case))
        self._line(COLUMNS)

    def measured(self, case: CommCase, found: Point) -> None:
        self._line(cells(found))

    def finished(self, case: CommCase, record: CommRecord) -> None:
        super().finished(case, record)
        if record.outcome != "ok":
            progress(f"{record.outcome}: {case.label}: {record.reason}")

    def skipped(self, case: CommCase, words: str) -> None:
        progress(f"  {words}")

    def waiting(self, why: str) -> None:
        progress(why)

    def _line(self, values: Sequence[str]) -> None:
        first, *others = values
        progress(first.rjust(2 * WIDTH) + "".join(value.rjust(WIDTH) for value in others))


class LiveTables(Gathering):
    """A table that grows; it stays when its case is over."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console

        super().__init__()
        self._console = console or Console()
        self._live: Any = None
        self._table: Any = None

    def unmeasured(self, refused: Refused) -> None:
        from rich.text import Text

        line = Text.assemble(("-", "yellow"), f" {without_codes(refused.label)} ", (refused.outcome, "yellow"))
        self._console.print(line, highlight=False)
        self._reason(refused.reason, "yellow")

    def started(self, case: CommCase, repeat: int) -> None:
        from rich.live import Live

        super().started(case, repeat)
        self._table = empty_table(self.title(case))
        self._live = Live(self._table, console=self._console, refresh_per_second=4)
        self._live.start()

    def measured(self, case: CommCase, found: Point) -> None:
        self._table.add_row(*cells(found))

    def skipped(self, case: CommCase, words: str) -> None:
        from rich.text import Text

        self._table.caption = Text(words, style="yellow")

    def finished(self, case: CommCase, record: CommRecord) -> None:
        super().finished(case, record)
        self.end()
        if record.outcome != "ok":
            self._console.print(f"✗ {record.outcome}", style="red", highlight=False, markup=False)
            self._reason(record.reason, "red")

    def _reason(self, reason: str, colour: str) -> None:
        self._console.print(f"  {without_codes(reason)}", style=colour, highlight=False, markup=False)

    def waiting(self, why: str) -> None:
        self._console.print(without_codes(why), style="yellow", highlight=False, markup=False)

    def end(self) -> None:
        """What was measured stays on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def empty_table(title: str) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def summary(found: Sequence[Link]) -> None:
    """Latency and bandwidth of every link, with the fit's errors; what can be hidden."""
    fits = [_fit_row(link) for link in found if link.fit and not link.case.workload]
    if fits:
        columns = ("backend", "operation", "alpha us", "+-", "1/beta MB/s", "+- %", "bus MB/s", "fit error %")
        show(fits, columns, "latency and bandwidth, fitted")
    rows = [
        {
            "backend": link.case.backend,
            "size": written(one.bytes),
            "communication ms": _scaled(one.comm, 1e3),
            "computation ms": _scaled(one.comp, 1e3),
            "hidden %": _share(one.plain),
            "hidden with progress calls %": _share(one.with_progress),
        }
        for link in found
        for one in link.overlaps
    ]
    if rows:
        show(rows, tuple(rows[0]), "all-reduce beside computation")
    late = [f"{link.case.label}: {', '.join(map(_size, link.without_figure))}" for link in found if link.without_figure]
    if late:
        say(f"no figure, since fewer than {LEAST} samples began in time on every rank: {'; '.join(late)}.")
        say("Measure longer (--seconds), or with no more ranks than free cores.")
    for mark, marked in by_mark(found).items():
        say(f"{mark}: {', '.join(link.case.label for link in marked)}: {meaning(mark)}.")
    if any(link.simulated for link in found):
        say(f"{SIMULATED}.")


def _share(found: float | None) -> str:
    return UNDETERMINED if found is None else f"{found:.0%}"


def _fit_row(link: Link) -> dict[str, Any]:
    fit, bus = link.fit, link.bus_limit
    assert fit is not None
    latency = {"alpha us": UNDETERMINED, "+-": ""}
    if fit.tells_latency:
        latency = {"alpha us": significant(fit.alpha * 1e6), "+-": significant(fit.alpha_error * 1e6)}
    bandwidth = {"1/beta MB/s": UNDETERMINED, "+- %": ""}
    if fit.tells_bandwidth:
        bandwidth = {"1/beta MB/s": significant(1e-6 / fit.beta), "+- %": f"{fit.beta_error / fit.beta:.1%}"}
    return {
        "backend": link.case.backend,
        "operation": link.case.operation + link.case.of_dtype + link.marked,
        **latency,
        **bandwidth,
        "bus MB/s": significant(bus / 1e6) if bus else "",
        "fit error %": f"{fit.error:.1%}",
    }
