"""A session's events in words, for the displays."""

from collections.abc import Iterable, Mapping
from typing import Any

from suite.analysis.measured import mean_loss, rate
from suite.cli.estimate import Estimate
from suite.contracts.case import Case
from suite.groups import grouped as by
from suite.plain import plain
from suite.results.proof import Proof
from suite.results.records import Record
from suite.worker import messages
from suite.worker.messages import Message

TIME_IS_UP = "the time is up; the same command goes on with what is missing"
MARKS = {"ok": ("✓", "green"), "unsupported": ("-", "yellow"), "unavailable": ("-", "yellow")}


def repeat(case: Case, number: int) -> str:
    """Which of the case's processes runs, counted from 1."""
    planned = case.sampling.processes
    return f"repeat {number + 1} of {planned}" if number < planned else f"repeat {number + 1} ({planned} planned)"


def further(processes: int) -> str:
    return f"a further round: {counted(processes, 'case')} cannot be told from another yet"


def still_open(cases: int, processes: int, half_width: float) -> str:
    """Which comparisons the most processes could not settle; `half_width` is a share of a ratio."""
    are, whose = ("is", "its interval is") if cases == 1 else ("are", "their intervals are")
    most = f"after {processes} processes, the most that a case gets"
    return f"{counted(cases, 'case')} {are} still open {most}: {whose} wider than ±{100 * half_width:g}%"


def mark(outcome: str) -> tuple[str, str]:
    """(symbol, colour) of an outcome."""
    return MARKS.get(outcome, ("✗", "red"))


def label(case: Case, width: int, more: str = "") -> str:
    """The case's full label where it fits, else a short one: adapter/strategy workload devices x batch; then `more`."""
    short = f"{case.adapter}/{case.strategy} {case.workload} {case.placement.device_count}×{case.batch}"  # noqa: RUF001
    full, less = (f"{name} {more}".rstrip() for name in (case.label, short))
    return full if len(full) <= width else less


def apart(cases: Iterable[Case]) -> dict[str, str]:
    """By id, what a label does not say: settings in which cases of one label differ; the tuning where any do."""
    found: dict[str, str] = {}
    cases = list(cases)
    always = {"tuning"} if len({case.tuning for case in cases}) > 1 else set()
    for several in by(cases, lambda case: case.label).values():
        settings = [_settings(case) for case in several]
        names = dict.fromkeys(name for one in settings for name in one)
        differing = [name for name in names if name in always or len({str(one.get(name)) for one in settings}) > 1]
        for case, one in zip(several, settings, strict=True):
            found[case.id] = " ".join(_said(name, one[name]) for name in differing if name in one)
    return found


def _settings(case: Case) -> dict[str, Any]:
    """All values, those of a part by its name, too: a knob may be called `mode`. The graph has a name already."""
    found: dict[str, Any] = {}
    for name, value in case.to_dict().items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": each for key, each in value.items()}
        elif name != "graph_digest":
            found[name] = value
    return found


def _said(name: str, value: Any) -> str:
    if name == "passes":
        return f"{value[0]} alone" if len(value) == 1 else f"{len(value)} passes"
    return value if isinstance(value, str) else f"{name.rpartition('.')[2]}={value}"


def numbers(record: Record) -> dict[str, str]:
    """What was measured, as short words: speed and loss; without what was not."""
    figures = {"speed": (rate(record), "{} samples/s"), "loss": (mean_loss(record.ranks, "native"), "loss {}")}
    return {name: text.format(significant(value)) for name, (value, text) in figures.items() if value is not None}


def significant(value: float) -> str:
    """Three digits that matter, never an exponent for what a person reads."""
    if value == 0 or not 0.001 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = max(0, 3 - len(str(int(abs(value))))) if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def proof(record: Record, proofs: Mapping[str, Proof]) -> tuple[str, str]:
    """(words, colour) of the proof that a record names; `proofs` by key, as the session reported them."""
    key = record.proof
    if key is None:
        return "no proof", "yellow"
    if key not in proofs:
        return "proof stored", "green"
    return ("proof ok", "green") if proofs[key].passed else ("proof FAILED", "red")


def proof_problem(found: Proof) -> str:
    """Why a proof failed: its reason, or its worst tensor."""
    worst = found.worst
    if found.reason or not worst:
        return found.reason or "no reason was given"
    return f"{worst.what} {worst.tensor} is off by {worst.error}, allowed {worst.tolerance}"


def counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def measured(estimate: Estimate) -> str:
    total = counted(estimate.processes, "process", "processes")
    return f"{estimate.done} of {total} measured in {duration(estimate.elapsed)}"


def duration(seconds: float) -> str:
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rank_state(message: Message) -> str | None:
    """What a rank is doing, from its message; None when the message does not say."""
    match message:
        case messages.Hello():
            return "started"
        case messages.Phase():
            return message.name
        case messages.Progress():
            doing = {"warmup": "warming up", "measure": "step"}.get(message.phase, message.phase)
            return f"{message.name}: {doing} {message.step}/{message.of}"
        case messages.Waiting():
            return "waiting for its turn"
        case messages.Failed():
            return f"failed: {plain(message.message)}"
        case messages.Done():
            return "done"
    return None


def grouped(states: dict[int, str]) -> list[str]:
    """Ranks in the same state, together: `ranks 0-3  native: step 3/5`."""
    return [f"{_ranks(ranks)}  {state}" for state, ranks in by(sorted(states), lambda rank: states[rank]).items()]


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"{len(ranks)} ranks"
