import errno
import io
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from rich.console import Console

from suite.analysis.measured import rate
from suite.cli import formatting
from suite.cli.comm_display import LiveTables, PlainLines
from suite.cli.estimate import Estimate, passes_run
from suite.cli.live import LiveDisplay, for_terminal
from suite.cli.plain import PlainDisplay
from suite.contracts.case import Case, Placement, Sampling
from suite.proofs.make import subject
from suite.results.proof import Proof
from suite.results.rank_report import Pass, Rank
from suite.results.records import Record
from suite.session.observer import Observer
from suite.worker import messages
from tests.support.sent import hello

SAMPLING = Sampling(processes=2)
ONE = Case("alpha", "single", "alexnet", batch=8, data="/data/imagenet-like", sampling=SAMPLING)
TWO = ONE.on(strategy="ddp", placement=Placement(ranks_per_node=2))


def timed(name: str, wall_s: float, samples: int = 40, loss: float | None = None) -> Pass:
    steps = (0.5,) * 5
    return Pass(name=name, wall_s=wall_s, samples=samples, loss=loss, step_s=steps, warmup_s=steps, steady=True)


def record(case: Case, outcome: str = "ok", **changes: Any) -> Record:
    ranks = [
        Rank(
            rank=rank,
            passes={
                "native": timed("native", 2.0 + rank, loss=6.0 + rank),
                "staged": timed("staged", 2.5 + rank, loss=6.0 + rank),
            },
        )
        for rank in range(case.placement.ranks)
    ]
    given = {"case_id": case.id, "case": case, "repeat": 0, "outcome": outcome, "started": "", "seconds": 12.0}
    where = {"interpreter": {"path": "/python", "origin": "here", "version": "3.11.7"}, "bundle": ""}
    load = {"before": (0.0, 0.0, 0.0), "after": (0.0, 0.0, 0.0)}
    return Record.model_validate({**given, **where, "load": load, "proof": "k1", "ranks": ranks, **changes})


def proof(key: str, passed: bool, reason: str = "") -> Proof:
    return Proof(key=key, **dict(subject(ONE)), passed=passed, reason=reason)


def session(display: Observer) -> None:
    """Events as a session tells them: a good case, one with a failed proof, one that crashes."""
    display.begin([ONE, TWO], 4, 1)
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


def test_lonelines() -> None:
    stream = io.StringIO()
    session(PlainDisplay(stream))
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
def test_what_cases_of_an_adapter_lack_alike_is_said_once(live: bool) -> None:
    stream = io.StringIO()
    display: Observer = LiveDisplay(Console(file=stream, width=120)) if live else PlainDisplay(stream)
    for case in (ONE, TWO):
        display.refused(case, "unavailable", "tox run -e alpha")
    display.refused(TWO, "unsupported", "alpha is superstitious")
    assert stream.getvalue() == "", "until all have come"
    display.begin([], 0, 0)
    display.end()
    told = stream.getvalue()
    assert [told.count(reason) for reason in ("tox run -e alpha", "alpha is superstitious")] == [1, 1]
    assert "alpha (2 cases)" in told
    assert TWO.label in told


@pytest.mark.parametrize("width", [80, 200])
def test_live_lines_fit_and_tell_all(width: int) -> None:
    stream = io.StringIO()
    session(LiveDisplay(Console(file=stream, width=width)))  # no terminal: only what stays is written
    lines = [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]
    assert max(map(len, lines)) <= width
    told = "\n".join(lines)
    assert "✓ alpha/single alexnet" in told
    assert "20.0 samples/s     loss 6.00 proof ok" in told
    assert "26.7 samples/s     loss 6.50 proof FAILED" in told
    assert "rank 1: signal SIGKILL" in told
    assert lines[-1] == "4 of 4 processes measured in 0:00"


@pytest.mark.parametrize("width", [80, 200])
def test_cases_of_the_same_label_are_told_apart(width: int) -> None:
    lone = ONE.on(seed=2, passes=("native",))
    cases = [ONE.on(tuning="tuned"), ONE.on(tuning="default", knobs={"mode": "sync"}), lone]
    stream, plain = io.StringIO(), io.StringIO()
    for display in (LiveDisplay(Console(file=stream, width=width)), PlainDisplay(plain)):
        display.begin(cases, 3, 0)
        for case in cases:
            display.finished(case, record(case))
        display.end()
    words = ["tuned seed=1 6 passes", "default seed=1 6 passes sync", "default seed=2 native alone"]
    lines = plain.getvalue().splitlines()[1:4]
    assert [line.split(" batch 8 imagenet-like ")[1].split(":")[0] for line in lines] == words
    assert all(word in stream.getvalue() for word in words)
    assert max(map(len, stream.getvalue().splitlines())) <= width


def test_a_long_name_takes_a_line_of_its_own() -> None:
    stream = io.StringIO()
    display, case = LiveDisplay(Console(file=stream, width=80)), ONE.on(strategy="synchronous_data_parallel")
    display.finished(case, record(case))
    name, results = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert name == f"✓ {case.label}"
    assert results.split(maxsplit=2) == ["20.0", "samples/s", "loss 6.00 proof stored"]


def test_a_tiny_loss_keeps_its_distance() -> None:
    stream = io.StringIO()
    display = LiveDisplay(Console(file=stream, width=80))
    native = timed("native", 2.0, samples=20_000, loss=6.51e-05)
    display.finished(ONE, record(ONE, ranks=[Rank(rank=0, passes={"native": native})]))
    assert "10,000 samples/s loss 6.51e-05" in stream.getvalue()


def test_the_live_view_says_what_runs_and_how_long_is_left() -> None:
    display = LiveDisplay(Console(file=io.StringIO(), width=100))
    display.begin([ONE, TWO], 4, 0)
    try:
        display.started(TWO, 1)
        for rank, step in ((0, 1), (0, 3), (1, 4)):
            display.message(TWO, rank, messages.Progress("native", "measure", step, 5))
        shown = Console(file=io.StringIO(), width=100)
        with shown.capture() as capture:
            shown.print(display.view())
    finally:
        display.end()
    told = capture.get()
    assert "alpha/ddp alexnet 2 ranks batch 8 imagenet-like  repeat 2 of 2" in told
    assert "rank 0  native: step 3/5" in told
    assert "rank 1  native: step 4/5" in told
    assert "step 3/5   about" in told
    assert "samples/s" in told
    assert "0/4 processes" in told
    assert "about 0:0" in told


@pytest.mark.parametrize("make", [PlainDisplay, lambda stream: LiveDisplay(Console(file=stream, width=100))])
def test_a_refused_case_is_told_before_anything_starts(make: Callable[[io.StringIO], Observer]) -> None:
    stream = io.StringIO()
    display = make(stream)
    display.refused(TWO, "unsupported", "alpha is superstitious")
    display.begin([ONE], 1, 0)
    display.end()
    told = stream.getvalue()
    assert "unsupported" in told.splitlines()[0]
    assert "alpha/ddp alexnet 2 ranks batch 8 imagenet-like" in told.splitlines()[0]
    assert "alpha is superstitious" in told
    assert told.splitlines()[-1] == "0 of 1 process measured in 0:00"


@pytest.mark.parametrize(
    "make", [PlainDisplay, PlainLines, lambda: LiveDisplay(Console(width=100)), lambda: LiveTables(Console(width=100))]
)
def test_what_the_disk_is_waited_for_is_a_line(make: Callable[[], Observer], capsys: pytest.CaptureFixture) -> None:
    make().waiting("cannot write [a].json: it is full")
    assert capsys.readouterr().out.strip().removeprefix("· ") == "cannot write [a].json: it is full"


@pytest.mark.parametrize(
    ("cases", "half_width", "told"),
    [
        (1, 0.005, ("1 case is still open", "its interval is wider than ±0.5%")),
        (2, 0.02, ("2 cases are still open", "their intervals are wider than ±2%")),
    ],
)
@pytest.mark.parametrize("make", [PlainDisplay, lambda: LiveDisplay(Console(width=130))])
def test_what_the_most_processes_leave_open_is_a_line(
    make: Callable[[], Observer], cases: int, half_width: float, told: tuple[str, str], capsys: pytest.CaptureFixture
) -> None:
    make().still_open(cases, 50, half_width)
    line = " after 50 processes, the most that a case gets: ".join(told)
    assert capsys.readouterr().out.strip().removeprefix("· ") == line


@pytest.mark.parametrize(("refused", "ends"), [(errno.ENOSPC, False), (errno.EPIPE, True)])
def test_a_log_on_a_full_disk_ends_no_run(refused: int, ends: bool) -> None:
    """What is written may come later; a reader that has gone does not."""

    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(refused, "")

    with pytest.raises(OSError, match=rf"Errno {refused}\b") if ends else nullcontext():
        PlainDisplay(Full()).time_is_up()


def test_one_is_not_many() -> None:
    assert (formatting.counted(1, "case"), formatting.counted(2, "case")) == ("1 case", "2 cases")
    stream = io.StringIO()
    PlainDisplay(stream).begin([ONE], 1, 0)
    assert stream.getvalue() == "1 case, 1 process\n"


def test_a_pipe_gets_lonelines() -> None:
    assert isinstance(for_terminal(io.StringIO()), PlainDisplay)


def test_ranks_in_the_same_state_are_told_together() -> None:
    assert formatting.grouped(dict.fromkeys(range(4), "native")) == ["ranks 0-3  native"]
    assert formatting.grouped({0: "a", 1: "b", 2: "a"}) == ["2 ranks  a", "rank 1  b"]


def test_the_rate_is_global_and_needs_every_rank() -> None:
    whole = record(TWO)
    assert rate(whole) == pytest.approx(80 / 3.0)
    assert set(formatting.numbers(whole)) == {"speed", "loss"}
    half = whole.but(ranks=[whole.ranks[0], Rank(rank=1)])
    assert rate(half) is None
    assert formatting.numbers(half) == {}
    assert rate(whole.but(ranks=[])) is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (19.34, "19.3"),
        (3.4, "3.40"),
        (1234.5, "1,234"),
        (0.0312, "0.031"),
        (2e-7, "2e-07"),
        (0.0, "0"),
        (-6.5, "-6.50"),
    ],
)
def test_three_digits_that_matter(value: float, told: str) -> None:
    assert formatting.significant(value) == told


@pytest.mark.parametrize(("seconds", "told"), [(0.4, "0:00"), (65, "1:05"), (7384, "2:03:04")])
def test_durations(seconds: float, told: str) -> None:
    assert formatting.duration(seconds) == told


def test_passes_that_have_nothing_to_measure_do_not_count() -> None:
    assert passes_run(ONE, 0) == ["native", "staged", "resident", "io_only"]
    assert passes_run(TWO.on(data="synthetic"), 0) == ["native", "staged", "compute_only", "comm_only"]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_comes_with_the_steps_of_the_native_pass() -> None:
    clock = Clock()
    estimate = Estimate(clock)
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


def test_the_first_estimate_comes_from_how_far_the_first_process_is() -> None:
    clock = Clock()
    estimate = Estimate(clock)
    estimate.begin(4, 0)
    assert estimate.left is None
    estimate.started(ONE, 0)
    clock.now = 10.0
    estimate.message(ONE, messages.Progress("staged", "measure", 5, 5))
    assert estimate.left == pytest.approx(10.0 + 3 * 20.0)  # two of four passes in 10 s


def test_later_estimates_come_from_finished_processes() -> None:
    clock = Clock()
    estimate = Estimate(clock)
    estimate.begin(5, 1)
    for case, seconds in ((ONE, 10.0), (TWO, 30.0)):
        estimate.started(case, 0)
        clock.now += seconds
        estimate.finished(case)
    assert estimate.left == pytest.approx(2 * 20.0)
    estimate.started(ONE, 0)
    clock.now += 4.0
    assert estimate.left == pytest.approx(6.0 + 20.0)
    assert (estimate.done, estimate.elapsed) == (3, 44.0)
