import errno
import io
import itertools
import re
from contextlib import nullcontext
from threading import Event, active_count
from typing import Any

import pyte
import pytest
from rich.console import Console

from stagebench.suite import text
from stagebench.suite.analysis.measured import rate
from stagebench.suite.cli import display as displays
from stagebench.suite.cli.display import Display, by_state, figures
from stagebench.suite.cli.estimate import Estimate, passes_run
from stagebench.suite.cli.output import pulsing
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.proofs.make import subject
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.results.records import CaseEntry, Proof, Record
from stagebench.suite.session.end_rule import still_open
from stagebench.suite.text import counted
from stagebench.suite.worker import messages
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.messages import ExchangeTimes, Pass
from tests.reports.made_comm import collective, exchanged
from tests.support.sent import hello

SAMPLING = Sampling(processes=2)
ONE = Case("alpha", "single", "alexnet", batch=8, data="/data/imagenet-like", sampling=SAMPLING)
TWO = ONE.on(strategy="ddp", placement=Placement(ranks_per_node=2))


def timed(name: str, wall_s: float, samples: int = 40, loss: float | None = None) -> Pass:
    steps = (0.5,) * 5
    return Pass(name=name, wall_s=wall_s, samples=samples, loss=loss, step_s=steps, warmup_s=steps, steady=True)


WALLS = {"native": 2.0, "staged": 2.5}


def record(case: Case, outcome: str = "ok", **changes: Any) -> Record:
    ranks = [
        Rank(rank=rank, passes={name: timed(name, wall + rank, loss=6.0 + rank) for name, wall in WALLS.items()})
        for rank in range(case.placement.ranks)
    ]
    return exchanged(case, outcome=outcome, **{"seconds": 12.0, "proof": "k1", "ranks": ranks, **changes})


def proof(key: str, passed: bool, reason: str = "") -> Proof:
    return Proof(key=key, **subject(ONE), passed=passed, reason=reason)


def entry(case: Any, outcome: Any = None, reason: str = "") -> CaseEntry:
    return CaseEntry(id=case.id, case=case, outcome=outcome, reason=reason)


def plain(stream: io.StringIO | None = None) -> Display:
    return Display(Console(file=stream or io.StringIO(), width=80, force_terminal=False), clock=lambda: 0.0)


class Terminal:
    """A display on a terminal, and the screen that a person sees."""

    def __init__(self, width: int) -> None:
        self.stream = io.StringIO()
        console = Console(file=self.stream, width=width, height=50, force_terminal=True)
        self.display = Display(console, clock=lambda: 0.0)
        self.width = width

    @property
    def lines(self) -> list[str]:
        screen = pyte.Screen(self.width, 50)
        pyte.Stream(screen).feed(self.stream.getvalue().replace("\n", "\r\n"))
        return [line.rstrip() for line in screen.display if line.strip()]


def session(display: Display) -> None:
    """The events of a session: a good case, one with a failed proof, one that crashes."""
    display.begin([entry(ONE), entry(TWO)], 4, 1)
    display.proving(ONE)
    display.proved(ONE, proof("k1", True))
    display.proved(TWO, proof("k2", False, "gradient conv1.weight is off by 0.1"))
    display.started(ONE, 0)
    display.message(ONE, 0, hello())
    display.message(ONE, 0, messages.Phase("native"))
    display.message(ONE, 0, messages.Progress("native", "measure", 3, 5))
    display.finished(ONE, record(ONE))
    display.started(TWO, 0)
    display.finished(TWO, record(TWO, proof="k2"))
    display.started(TWO, 1)
    display.finished(TWO, record(TWO, "crash", reason="rank 1: signal SIGKILL", ranks=[], proof=None))
    display.end()


def test_a_pipe_gets_a_line_for_each_event():
    stream = io.StringIO()
    session(plain(stream))
    lines = [line.split("; about")[0] for line in stream.getvalue().splitlines()]
    assert lines == [
        "2 cases, 4 processes, 1 of them measured before",
        "proof FAILED: alpha/ddp alexnet 2 ranks batch 8 imagenet-like: gradient conv1.weight is off by 0.1",
        "[2/4] running alpha/single alexnet 1 rank batch 8 imagenet-like, repeat 1 of 2",
        "[2/4] ok: alpha/single alexnet 1 rank batch 8 imagenet-like: 20.0 samples/s, loss 6.00, proof ok, 12 s",
        "[3/4] running alpha/ddp alexnet 2 ranks batch 8 imagenet-like, repeat 1 of 2",
        "[3/4] ok: alpha/ddp alexnet 2 ranks batch 8 imagenet-like: 26.7 samples/s, loss 6.50, proof FAILED, 12 s",
        "[4/4] running alpha/ddp alexnet 2 ranks batch 8 imagenet-like, repeat 2 of 2",
        "[4/4] crash: alpha/ddp alexnet 2 ranks batch 8 imagenet-like: rank 1: signal SIGKILL, no proof, 12 s",
        "4 of 4 processes measured in 0:00",
    ]


@pytest.mark.parametrize("live", [False, True])
def test_a_reason_of_several_cases_is_printed_once_before_anything_starts_and_a_note_is_a_line(live):
    terminal, stream = Terminal(120), io.StringIO()
    display = terminal.display if live else plain(stream)
    missing = [entry(case, "unavailable", "tox run -e alpha") for case in (ONE, TWO)]
    display.begin([*missing, entry(TWO, "unsupported", "alpha is superstitious")], 0, 0)
    display.note("cannot write [a].json: it is full")
    display.end()
    lines = terminal.lines if live else stream.getvalue().splitlines()
    assert [sum(reason in line for line in lines) for reason in ("tox run", "superstitious")] == [1, 1]
    assert "unavailable: alpha (2 cases)" in lines[0]
    assert any(f"unsupported: {TWO.label}" in line for line in lines)
    note = "cannot write [a].json: it is full"
    assert lines[-2:] == [f"· {note}" if live else note, "0 of 0 processes measured in 0:00"]


@pytest.mark.parametrize("width", [80, 200])
def test_results_on_a_terminal_fit(width):
    terminal = Terminal(width)
    session(terminal.display)
    screen = "\n".join(terminal.lines)
    label = ONE.label if width > 100 else "alpha/single alexnet 1×8"  # noqa: RUF001
    assert re.search(rf"^✓ {label} +20\.0 samples/s     loss 6\.00 proof ok$", screen, re.MULTILINE)
    assert "26.7 samples/s     loss 6.50 proof FAILED" in screen
    assert re.search(r"^✗ alpha/ddp .* crash +no proof\n  rank 1: signal SIGKILL$", screen, re.MULTILINE)
    assert terminal.lines[-1] == "4 of 4 processes measured in 0:00"


@pytest.mark.parametrize("width", [80, 200])
def test_cases_of_one_label_differ_in_their_settings(width):
    lone = ONE.on(seed=2, passes=("native",))
    cases = [ONE.on(tuning="tuned"), ONE.on(tuning="default", knobs={"mode": "sync"}), lone]
    terminal, stream = Terminal(width), io.StringIO()
    for display in (terminal.display, plain(stream)):
        display.begin(list(map(entry, cases)), 3, 0)
        for case in cases:
            display.finished(case, record(case))
        display.end()
    words = ["tuned seed=1 6 passes", "default seed=1 6 passes sync", "default seed=2 native alone"]
    lines = stream.getvalue().splitlines()[1:4]
    assert [line.split(" batch 8 imagenet-like ")[1].split(":")[0] for line in lines] == words
    screen = " ".join(" ".join(terminal.lines).split())
    assert all(word in screen for word in (words if width > 100 else ["tuned", "seed=1", "mode=sync", "alone"][:2]))


def test_a_long_name_folds_and_its_figures_keep_their_columns():
    terminal, case = Terminal(80), ONE.on(strategy="synchronous_data_parallel_over_sockets")
    terminal.display.finished(case, record(case))
    first, *others = terminal.lines
    assert first.endswith("20.0 samples/s     loss 6.00 proof stored")
    assert others


def test_the_live_view_shows_the_running_case_and_the_time_left():
    seconds = itertools.count()
    display = Display(Console(file=io.StringIO(), width=100, force_terminal=True), clock=lambda: next(seconds))
    display.begin([entry(ONE), entry(TWO)], 4, 0)
    try:
        display.started(TWO, 1)
        for rank, step in ((0, 1), (0, 3), (1, 4)):
            display.message(TWO, rank, messages.Progress("native", "measure", step, 5))
        console = Console(file=io.StringIO(), width=100)
        with console.capture() as capture:
            console.print(display.view())
    finally:
        display.end()
    view = capture.get()
    assert "alpha/ddp alexnet 2 ranks batch 8 imagenet-like, repeat 2 of 2" in view
    assert "rank 0  native: step 3/5" in view
    assert "rank 1  native: step 4/5" in view
    assert re.search(r"step 3/5   about .* samples/s", view)
    assert re.search(r"0/4 processes  \d:\d\d so far  about \d:\d\d left", view)


@pytest.mark.parametrize("live", [False, True])
def test_collectives_are_shown_by_the_same_display(live):
    terminal, stream = Terminal(80), io.StringIO()
    display = terminal.display if live else plain(stream)
    case = collective("wire", "broadcast", Placement(ranks_per_node=2, launcher="local"), 0.0, (1024,))
    rows = [ExchangeTimes("single", "broadcast", 4096, 1, [2e-3] * 5, [0.0] * 5)]
    ranks = [{"rank": rank, "exchanges": rows} for rank in range(2)]
    display.begin([entry(case)], 1, 0)
    display.started(case, 0)
    display.message(case, 0, rows[0])
    assert displays.rank_state(rows[0]) == "broadcast of 4 KiB: 2,000 µs"
    display.finished(case, exchanged(case, ranks))
    display.end()
    lines = terminal.lines if live else stream.getvalue().splitlines()
    assert any("wire broadcast, 2 ranks" in line for line in lines)
    (row,) = [line.split() for line in lines if "4 KiB" in line]
    assert row == ["4", "KiB", "1", "2,000", "2,000", "2,000", "2.05", "2.05", "5", "0"]
    assert lines[-1] == "1 of 1 process measured in 0:00"


def test_comparisons_that_the_most_processes_leave_open():
    most = "after 50 processes, the most that a case gets:"
    assert still_open(1, 50, 0.005) == f"1 case is still open {most} its interval is wider than ±0.5%"
    assert still_open(2, 50, 0.02) == f"2 cases are still open {most} their intervals are wider than ±2%"


@pytest.mark.parametrize(("refused", "ends"), [(errno.ENOSPC, False), (errno.EPIPE, True)])
def test_a_log_on_a_full_disk_ends_no_run(refused, ends):
    """A full disk may have room later; a reader that has gone does not come back."""

    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(refused, "")

    with pytest.raises(OSError, match=rf"Errno {refused}\b") if ends else nullcontext():
        plain(Full()).note("the time is up")


def test_one_is_not_many_and_ranks_in_the_same_state_are_told_together():
    assert (counted(1, "case"), counted(2, "case")) == ("1 case", "2 cases")
    stream = io.StringIO()
    plain(stream).begin([entry(ONE)], 1, 0)
    assert stream.getvalue() == "1 case, 1 process\n"
    assert by_state(dict.fromkeys(range(4), "native")) == ["ranks 0-3  native"]
    assert by_state({0: "a", 1: "b", 2: "a"}) == ["2 ranks  a", "rank 1  b"]


def test_the_rate_is_global_and_needs_every_rank():
    whole = record(TWO)
    assert rate(whole) == pytest.approx(80 / 3.0)
    assert figures(whole, {}) == {"samples/s": "26.7 samples/s", "loss": "loss 6.50", "proof": "proof stored"}
    half = whole.but(ranks=[whole.ranks[0], Rank(rank=1)])
    assert rate(half) is None
    assert (figures(half, {})["samples/s"], figures(half, {})["loss"]) == ("", "")
    assert rate(whole.but(ranks=[])) is None


def test_three_digits_that_matter_and_durations():
    values = (19.34, 3.4, 1234.5, 0.0312, 2e-7, 0.0, -6.5)
    assert [text.significant(each) for each in values] == ["19.3", "3.40", "1,234", "0.031", "2e-07", "0", "-6.50"]
    assert [text.duration(each) for each in (0.4, 65, 7384)] == ["0:00", "1:05", "2:03:04"]
    assert passes_run(ONE, 0) == ["native", "staged", "resident", "io_only"]
    assert passes_run(TWO.on(data="synthetic"), 0) == ["native", "staged", "compute_only", "comm_only"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def estimate(clock: Clock) -> Estimate:
    return Estimate(clock)


def test_the_rate_comes_with_the_steps_of_the_native_pass(clock, estimate):
    estimate.started(TWO, 0)
    rates = []
    for clock.now, name, phase, step in (
        (1.0, "native", "warmup", 3),
        (2.0, "native", "measure", 1),
        (4.0, "native", "measure", 11),
        (5.0, "staged", "measure", 50),
        (6.0, "native", "measure", 31),
        (7.0, "native", "measure", 1),
    ):
        estimate.message(TWO, messages.Progress(name, phase, step, 50))
        rates.append(estimate.rate)
    assert rates == [None, None, 80.0, 80.0, 120.0, None], "10 steps of 16 samples in 2 s, 30 in 4 s, a new beginning"


def test_the_first_estimate_follows_from_the_first_process(clock, estimate):
    estimate.begin(4, 0)
    assert estimate.left is None
    estimate.started(ONE, 0)
    clock.now = 10.0
    estimate.message(ONE, messages.Progress("staged", "measure", 5, 5))
    assert estimate.left == pytest.approx(10.0 + 3 * 20.0)  # two of four passes in 10 s


def test_later_estimates_follow_from_finished_processes_and_leave_out_the_time_of_proofs(clock, estimate):
    estimate.begin(5, 1)
    for case, seconds in ((ONE, 10.0), (TWO, 30.0)):
        clock.now += 2.0  # for proofs
        estimate.started(case, 0)
        clock.now += seconds
        estimate.finished(case)
    assert estimate.left == pytest.approx(2 * 20.0)
    assert (estimate.done, estimate.elapsed) == (3, 44.0)


def test_a_collective_advances_with_each_message_size(clock, estimate):
    case = collective("wire", "broadcast", Placement(ranks_per_node=2, launcher="local"), 0.0, (1, 4, 16, 64))
    estimate.begin(2, 0)
    estimate.started(case, 0)
    clock.now = 3.0
    estimate.message(case, ExchangeTimes("single", "broadcast", 4, 1, [1e-3] * 5, [0.0] * 5))
    assert estimate.fraction == 0.25
    assert estimate.left == pytest.approx(3.0 * 3 + 12.0)


def test_what_takes_minutes_is_said_again_and_again_in_a_log_and_not_on_a_terminal():
    written, log, threads = Event(), io.StringIO(), active_count()
    with pulsing(str, Console(file=log, force_terminal=True)):
        assert active_count() == threads
    with pulsing(lambda: written.set() or "proving alexnet", Console(file=log), every=0.01):
        assert written.wait(60)
    assert log.getvalue().splitlines()[0].endswith("so far; proving alexnet")


def test_of_proofs_that_run_at_a_time_the_oldest_is_named():
    display, third = Display(Console(file=io.StringIO(), width=200), clock=lambda: 0.0), ONE.on(batch=16)
    events = [lambda case=case: display.proving(case) for case in (ONE, TWO, third)]
    events += [lambda case=case: display.proved(case, proof(case.id, True)) for case in (TWO, ONE, third)]
    lines = []
    for event in events:
        event()
        with display._console.capture() as capture:
            display._console.print(display.view())
        lines.append(" ".join(capture.get().splitlines()[1].split()[1:]))
    one, three = f"proving {ONE.label}", f"proving {third.label}"
    assert lines == [one, f"{one}, and 1 other", f"{one}, and 2 others", f"{one}, and 1 other", three, lines[5]]
    assert "proving" not in lines[5]
