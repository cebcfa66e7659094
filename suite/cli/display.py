"""A session's events as a person sees them: each result as it comes, and below it what runs now and how long is left.

Trainings and collectives are shown alike: a case's result is printed when the case ends. A collective's result is a
table of all its sizes; until then each size appears only in the line of the ranks' states. In a pipe or a file each
event is one plain line, written at once.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from stagebench.suite.analysis.links import link, written
from stagebench.suite.analysis.measured import mean_loss, rate
from stagebench.suite.cli import comm_tables
from stagebench.suite.cli.estimate import Estimate
from stagebench.suite.cli.output import apart, label, progress, proofs_under_way, pulsing
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import Refused, once_per_reason
from stagebench.suite.results.records import CaseEntry, Proof, Record
from stagebench.suite.session.observer import Observer
from stagebench.suite.text import counted, duration, grouped, plain, significant, without_codes
from stagebench.suite.worker import messages
from stagebench.suite.worker.messages import Message
from stagebench.suite.worker.pass_kinds import NATIVE

WIDEST = 130  # columns of a result line: in a longer one the eye loses the row
MARKS = {"ok": ("✓", "green"), "unsupported": ("-", "yellow"), "unavailable": ("-", "yellow"), "note": ("·", "cyan")}
FIGURES = ("samples/s", "loss", "proof")
WIDTHS = {"samples/s": 16, "loss": 13, "proof": 12}  # of the figures on a terminal, at least


class Display(Observer):
    """Prints the events of a session to a console."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`console` is stdout by default; `clock` gives seconds."""
        self._console = console or Console()
        self._estimate = Estimate(clock)
        self._proofs: dict[str, Proof] = {}
        self._proving: dict[str, str] = {}  # by case, in the order of their beginnings: its label
        self._apart: dict[str, str] = {}
        self._running: dict[str, str] = {}  # by case: how the view calls it
        self._doing, self._states = "starting", dict[int, str]()
        self._spinner = Spinner("dots", style="cyan")
        # rich draws the view in a thread of its own, so the methods below replace values instead of changing them.
        self._live = Live(console=self._console, get_renderable=self.view, refresh_per_second=4, transient=True)
        self._shown = ExitStack()

    def begin(self, entries: Sequence[CaseEntry], processes: int, done: int) -> None:
        """Print the cases that cannot run, each reason once, then the size of the run."""
        refused = [
            Refused(
                case.label, case.collective.backend if case.collective else case.adapter, entry.outcome, entry.reason
            )
            for entry in entries
            if (case := entry.case) and entry.outcome
        ]
        for reason in once_per_reason(refused):
            self._print(reason.outcome, f"{reason.outcome}: {reason.label}", reason=reason.reason)
        self._estimate.begin(processes, done)
        cases = [entry.case for entry in entries if not entry.outcome]
        self._apart = apart(case for case in cases if not case.collective)
        if self._console.is_terminal:
            self._shown.enter_context(self._live)
            return
        size = f"{counted(len(cases), 'case')}, {counted(processes, 'process', 'processes')}"
        self._plain(size + (f", {done} of them measured before" if done else ""))
        self._shown.enter_context(pulsing(lambda: self._doing, self._console))

    def proving(self, case: Case) -> None:
        self._proving[case.id] = self._label(case)
        self._now(proofs_under_way(self._proving.values()))

    def proved(self, case: Case, proof: Proof) -> None:
        """Print a proof that failed; the results name those that passed."""
        self._proofs[str(proof.key)] = proof
        self._proving.pop(case.id, None)
        self._now(proofs_under_way(self._proving.values()))
        if not proof.passed:
            worst, reason = proof.worst, proof.reason or "no reason was given"
            if worst and not proof.reason:
                reason = f"{worst.what} {worst.tensor} is off by {worst.error}, allowed {worst.tolerance}"
            self._print("FAILED", f"proof FAILED: {self._label(case)}", reason=reason)

    def started(self, case: Case, repeat: int) -> None:
        self._estimate.started(case, repeat)
        label = self._label(case)
        if not case.collective:
            planned = case.sampling.processes
            label += f", repeat {repeat + 1}" + (f" of {planned}" if repeat < planned else f" ({planned} planned)")
        self._running = {**self._running, case.id: label}
        self._now(label)
        if not self._console.is_terminal:
            self._plain(f"{self._count(len(self._running))} running {label}")

    def message(self, case: Case, rank: int, message: Message) -> None:
        if rank == 0:
            self._estimate.message(case, message)
        label = self._running.get(case.id, self._doing)
        if label != self._doing:  # the turn has passed to this case
            self._now(label)
        state = rank_state(message)
        if state is not None:
            self._states = {**self._states, rank: without_codes(state)}

    def finished(self, case: Case, record: Record) -> None:
        """Print the result; of collectives, a table of all sizes."""
        self._estimate.finished(case)
        self._running = {id_: label for id_, label in self._running.items() if id_ != case.id}
        shown = {} if case.collective else figures(record, self._proofs)
        reason, left = "" if record.outcome == "ok" else record.reason, self._estimate.left
        ahead = f"; about {duration(left)} left" if left else ""
        self._print(record.outcome, self._label(case), shown, reason, f"{record.seconds:.0f} s{ahead}")
        if case.collective:
            measured = link(record)
            comm_tables.show_points(measured, console=self._console)
            if measured.skipped:
                self._print("note", comm_tables.skipped(measured))
        self._now(proofs_under_way(()))

    def note(self, text: str, further: int = 0) -> None:
        self._estimate.processes += further
        self._print("note", text)

    def end(self) -> None:
        """Stop drawing and print the number of processes and the time."""
        self._shown.close()
        estimate = self._estimate
        total = counted(estimate.processes, "process", "processes")
        self._plain(f"{estimate.done} of {total} measured in {duration(estimate.elapsed)}")

    def view(self) -> Group:
        """Draw what runs now: a rule, the case, its ranks and its speed so far, a bar."""
        estimate, ranks = self._estimate, by_state(self._states)
        if ranks and estimate.rate:
            ranks[0] += f"   about {significant(estimate.rate)} samples/s"
        more = [f"and {len(ranks) - 3} other states"] if len(ranks) > 3 else []
        now = Table.grid(padding=(0, 1))
        now.add_row(self._spinner, Text(self._doing, no_wrap=True, overflow="ellipsis"))
        lines = [Text(f"   {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in ranks[:3] + more]
        left = estimate.left
        words = f"{estimate.done}/{estimate.processes} processes  {duration(estimate.elapsed)} so far  "
        words += "working out how long is left" if left is None else f"about {duration(left)} left"
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_row(
            ProgressBar(max(1, estimate.processes), estimate.done + estimate.fraction), Text(words, no_wrap=True)
        )
        return Group(Rule(style="dim"), now, *lines, bar)

    def _label(self, case: Case) -> str:
        if case.collective:
            return without_codes(f"{case.label}, {case.placement.launcher}")
        room = self._console.width - sum(WIDTHS.values()) - 6 if self._console.is_terminal else len(case.label) + 1000
        return without_codes(label(case, room, self._apart.get(case.id, "")))

    def _now(self, doing: str) -> None:
        self._doing, self._states = doing, {}

    def _count(self, ahead: int) -> str:
        total = self._estimate.processes
        return f"[{self._estimate.done + ahead:{len(str(total))}}/{total}]"

    def _plain(self, line: str) -> None:
        progress(line, self._console.file)

    def _print(
        self, outcome: str, label: str, shown: Mapping[str, str] | None = None, reason: str = "", tail: str = ""
    ) -> None:
        """Print a result or a note; `shown` are its figures, `tail` is only for plain lines."""
        if not self._console.is_terminal:
            words = ", ".join(filter(None, (reason, *(shown or {}).values(), tail)))
            count = f"{self._count(0)} {outcome}: " if tail else ""
            self._plain(f"{count}{label}{': ' if words else ''}{words}")
            return
        symbol, colour = MARKS.get(outcome, ("✗", "red"))
        row, cells = Table.grid(padding=(0, 1), expand=True), list[Text]()
        row.width = min(self._console.width, WIDEST)
        row.add_column()
        row.add_column(ratio=1, overflow="fold")
        if shown:
            shown = {**shown, "samples/s": shown["samples/s"] or ("" if outcome == "ok" else outcome)}
            for name, width in WIDTHS.items():
                row.add_column(min_width=width, no_wrap=True, justify="left" if name == "proof" else "right")
                failed = name == "proof" and shown.get(name) == "proof FAILED"
                cells.append(Text(shown.get(name, ""), "red" if failed else ""))
        row.add_row(Text(symbol, colour), Text(without_codes(label)), *cells)
        self._console.print(row)
        if reason:
            self._console.print(Padding(Text(without_codes(reason), colour), (0, 0, 0, 2)))


def figures(record: Record, proofs: Mapping[str, Proof]) -> dict[str, str]:
    """Return the measured speed and loss, and the proof that the record names, as short words.

    `proofs` are those that the session reported, by key.
    """
    speed, loss = rate(record) if record.result == "ok" else None, mean_loss(record.ranks, NATIVE)
    words = {"samples/s": "" if speed is None else f"{significant(speed)} samples/s"}
    words["loss"] = "" if loss is None else f"loss {significant(loss)}"
    words["proof"] = "no proof" if record.proof is None else "proof stored"
    if record.proof is not None and record.proof in proofs:
        words["proof"] = "proof ok" if proofs[record.proof].passed else "proof FAILED"
    return words


def rank_state(message: Message) -> str | None:
    """Return the state of a rank that sent this message; None if the message does not tell."""
    match message:
        case messages.Hello():
            return "started"
        case messages.Phase():
            return message.name
        case messages.Progress():
            doing = {"warmup": "warming up", "measure": "step"}.get(message.phase, message.phase)
            return f"{message.name}: {doing} {message.step}/{message.of}"
        case messages.ExchangeTimes() if message.sample_s:
            return f"{message.operation} of {written(message.bytes)}: {significant(1e6 * median(message.sample_s))} µs"
        case messages.Waiting():
            return "waiting for its turn"
        case messages.Failed():
            return f"failed: {plain(message.message)}"
        case messages.Done():
            return "done"
    return None


def by_state(states: Mapping[int, str]) -> list[str]:
    """Join ranks in the same state: `ranks 0-3  native: step 3/5`."""
    lines = []
    for state, ranks in grouped(sorted(states), lambda rank: states[rank]).items():
        names = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
        if len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1:
            names = f"ranks {ranks[0]}-{ranks[-1]}"
        lines.append(f"{names}  {state}")
    return lines
