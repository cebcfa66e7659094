"""A session's events as a live view: what runs now and how long is left, each result above it.

rich is imported inside the functions, as everywhere in the command line (see `suite.cli`).
"""

import sys
import threading
from typing import TYPE_CHECKING, Any, TextIO

from suite.cli import formatting
from suite.cli.estimate import Estimate
from suite.cli.plain import PlainDisplay
from suite.contracts.case import Case
from suite.groups import Refused, once_per_reason
from suite.plain import without_codes
from suite.results.proof import Proof
from suite.results.records import Record
from suite.session.observer import Observer
from suite.worker.messages import Message

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text

WIDEST = 130  # columns of a result line: beyond that the eye loses the row
COLUMNS = {"speed": 16, "loss": 14}


def for_terminal(stream: TextIO | None = None) -> Observer[Case, Record]:
    """The observer that suits the stream (stdout when not given): plain lines when piped."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return PlainDisplay(stream)
    from rich.console import Console

    return LiveDisplay(Console(file=stream))


class LiveDisplay(Observer[Case, Record]):
    """What runs now and how long is left at the bottom; each result printed above as it comes."""

    def __init__(self, console: "Console") -> None:
        """Draws on `console` from begin to end."""
        from rich.live import Live
        from rich.spinner import Spinner

        self._console = console
        self._spinner = Spinner("dots", style="cyan")
        self._lock = threading.Lock()  # the view is drawn by rich's own thread
        self._estimate = Estimate()
        self._refused: list[Refused] = []
        self._proofs: dict[str, Proof] = {}
        self._apart: dict[str, str] = {}
        self._doing = "starting"
        self._called: dict[str, str] = {}  # the running ones, by case
        self._states: dict[int, str] = {}
        # Last: it asks for a first view at once.
        self._live = Live(console=console, get_renderable=self.view, refresh_per_second=4, transient=True)

    def refused(self, case: Case, outcome: str, reason: str) -> None:
        """Kept until `begin`: many cases may lack the same."""
        self._refused.append(Refused(case.label, case.adapter, outcome, reason))

    def begin(self, cases: list[Case], processes: int, done: int) -> None:
        """What will not be measured, each reason once for an adapter; then start drawing."""
        from rich.text import Text

        for one in once_per_reason(self._refused):
            symbol, colour = formatting.mark(one.outcome)
            self._print(symbol, colour, Text(one.outcome, colour), without_codes(one.label))
            self._print_reason(one.reason, colour)
        self._estimate.begin(processes, done)
        self._apart = formatting.apart(cases)
        self._live.start()

    def proving(self, case: Case) -> None:
        self._now(f"proving  {self._label(case, self._console.width - 12)}")

    def proved(self, case: Case, proof: Proof) -> None:
        """A proof that failed is printed; one that passed shows in the results."""
        self._proofs[str(proof.key)] = proof
        if not proof.passed:
            self._print("✗", "red", f"proof of {self._label(case, self._console.width - 12)}")
            self._print_reason(formatting.proof_problem(proof), "red")

    def started(self, case: Case, repeat: int) -> None:
        self._estimate.started(case, repeat)
        repeats = f"  {formatting.repeat(case, repeat)}"
        room = self._console.width - len(repeats) - 4
        self._called[case.id] = self._label(case, room) + repeats
        self._now(self._called[case.id])

    def message(self, case: Case, rank: int, message: Message) -> None:
        if rank == 0:
            self._estimate.message(case, message)
        if self._called.get(case.id, self._doing) != self._doing:  # its turn, of several that take turns
            self._now(self._called[case.id])
        state = formatting.rank_state(message)
        if state is not None:
            with self._lock:
                self._states[rank] = without_codes(state)

    def finished(self, case: Case, record: Record) -> None:
        """A result, printed above the live part."""
        self._estimate.finished(case)
        self._called.pop(case.id, None)
        symbol, colour = formatting.mark(record.outcome)
        line = [f"{text:>{COLUMNS[name]}}" for name, text in formatting.numbers(record).items()]
        proof, proof_colour = formatting.proof(record, self._proofs)
        outcome = "" if record.outcome == "ok" else f"{record.outcome}  "
        tail = outcome + "".join(line)
        proof = proof.ljust(len("proof FAILED"))
        width = min(self._console.width, WIDEST)
        room = width - len(tail) - len(proof) - 4
        called = self._label(case, room)
        if len(called) > room:  # a line of its own
            self._print(symbol, colour, self._label(case, width - 2))
            symbol, called = " ", ""
        self._print(symbol, colour, called.ljust(room), tail, (proof, proof_colour))
        if outcome:
            self._print_reason(record.reason, colour)
        self._now("choosing what comes next")

    def waiting(self, why: str) -> None:
        self._print("·", "yellow", without_codes(why))

    def further(self, processes: int) -> None:
        self._estimate.further(processes)
        self._print("+", "cyan", formatting.further(processes))

    def time_is_up(self) -> None:
        self._print("·", "cyan", formatting.TIME_IS_UP)

    def still_open(self, cases: int, processes: int, half_width: float) -> None:
        self._print("·", "cyan", formatting.still_open(cases, processes, half_width))

    def end(self) -> None:
        """Stop drawing and say how it ended."""
        self._live.stop()
        self._console.print(formatting.measured(self._estimate), highlight=False)

    def view(self) -> "Group":
        """The live part: a rule, what runs now, its ranks and its speed so far, the bar."""
        from rich.console import Group
        from rich.rule import Rule
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            doing, ranks, rate = self._doing, formatting.grouped(self._states), self._estimate.rate
        if ranks and rate:
            ranks[0] += f"   about {formatting.significant(rate)} samples/s"
        more = [f"and {len(ranks) - 3} other states"] if len(ranks) > 3 else []
        lines = [Text(f"   {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in ranks[:3] + more]
        now = Table.grid(padding=(0, 1))
        now.add_row(self._spinner, Text(doing, no_wrap=True, overflow="ellipsis"))
        return Group(Rule(style="dim"), now, *lines, self._bar())

    def _bar(self) -> "Any":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        estimate = self._estimate
        left = estimate.left
        line = f"{estimate.done}/{estimate.processes} processes  {formatting.duration(estimate.elapsed)} so far  "
        line += "working out how long is left" if left is None else f"about {formatting.duration(left)} left"
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        bar.add_row(
            ProgressBar(total=max(1, estimate.processes), completed=estimate.done + estimate.fraction), Text(line)
        )
        return bar

    def _label(self, case: Case, room: int) -> str:
        return without_codes(formatting.label(case, room, self._apart.get(case.id, "")))

    def _now(self, doing: str) -> None:
        with self._lock:
            self._doing, self._states = doing, {}

    def _print(self, symbol: str, colour: str, *parts: "str | tuple[str, str] | Text") -> None:
        from rich.text import Text

        line = Text.assemble((symbol, colour), " ", parts[0], " ", *(_spaced(part) for part in parts[1:]))
        self._console.print(line, highlight=False)

    def _print_reason(self, reason: str, colour: str) -> None:
        from rich.padding import Padding
        from rich.text import Text

        self._console.print(Padding(Text(without_codes(reason), style=colour), (0, 0, 0, 2)), highlight=False)


def _spaced(part: "str | tuple[str, str] | Text") -> "Any":
    return (f" {part[0]}", part[1]) if isinstance(part, tuple) else part
