"""The tables of the pages that follow from the code: `python -m tests.docs.made` writes them anew.

A table is between `<!-- made: NAME -->` and `<!-- end -->`; tests/docs/test_made.py checks that it is up to date.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from stagebench.suite.analysis.comparability import DISQUALIFYING, NOTED
from stagebench.suite.contracts.adapter import Strategy
from stagebench.suite.plugins import adapters
from stagebench.suite.processes.environments import declared, pins
from stagebench.suite.proofs.tolerances import BITS, FIXED
from stagebench.suite.worker.pass_kinds import PASS_KINDS

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- made: ([\w-]+) -->\n\n).*?(\n<!-- end -->)", re.DOTALL)

# By heading: a module of the suite, a constant's name, its meaning, its unit; % is a share in hundredths.
THRESHOLDS: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    "Warm-up and sampling": (
        ("worker.loop", "WINDOW", "steps examined for the end of the warm-up", ""),
        ("worker.loop", "QUICK_WINDOW", "the same, if a plan asks for fewer steps", ""),
        ("worker.loop", "LEAST_FALL", "least fall of the step's time that is a trend", "%"),
        (
            "worker.loop",
            "PATIENCE",
            "multiple of these steps after which `warmup_limit` ends a warm-up with a trend",
            "times",
        ),
        ("worker.loop", "LIMIT", "multiple after which it ends in any case", "times"),
        ("worker.loop", "PART_S", "least length of a part of the native pass", "s"),
        ("worker.loop", "MOST_WAIT_S", "time for parts that replace disturbed ones, or the pass's if longer", "s"),
        ("worker.loop", "ROUNDS", "fewest rounds of a difference between passes", ""),
        ("worker.loop", "BLOCK_S", "least length of a block in a round", "s"),
        ("worker.loop", "BLOCK_STEPS", "fewest steps in a block", ""),
        ("worker.loop", "RESUMED", "untimed steps before a block that reads", ""),
        ("worker.loop", "RESUMED_SHARE", "a turn's steps ÷ its untimed steps", ""),
        ("worker.feed", "RESIDENT", "synthetic or resident batches that take turns", ""),
        ("worker.feed", "FILL_S", "longest time for readers to read ahead", "s"),
        ("session.turns", "MOST", "most cases that take turns", ""),
    ),
    "Speeds and comparisons": (
        ("analysis.stats", "LEVEL", "confidence of intervals", "%"),
        ("analysis.stats", "LOOKED", "the same for a lone row of a run with `--until` or `--for`", "%"),
        ("analysis.stats", "BATCHES", "stretches of a lone process's steps", ""),
        (
            "analysis.leaders",
            "FAR_NOISIER",
            "variance, over the usual one, of a row that the average scatter leaves out",
            "times",
        ),
        ("analysis.leaders", "SEVERAL", "rounds after which a comparison may be given up", ""),
        ("session.end_rule", "CLEAR", "half-width of a clear interval, with `--for` alone", "%"),
        ("session.end_rule", "MOST_PROCESSES", "most processes of a case, with `--until`", ""),
        ("analysis.compare_runs", "SMALL", "smallest change that matters to `compare` and `history`", "%"),
    ),
    "Marks": (
        ("analysis.trend", "NOTICED", "`trend`: change of the step's time over a pass", "%"),
        ("analysis.trend", "ACCEPTED", "`trend`: chance that noise alone marks a row", "%"),
        ("analysis.trend", "ALIKE_AT", "`trend`: the same chance for each of its processes", "%"),
        ("worker.noise", "BUSY", "`disturbed`: share of a rank's cores used by other programs", "%"),
        ("worker.noise", "STOLEN", "`disturbed`: share of them taken by other guests", "%"),
        ("analysis.machine", "SLOWED", "`disturbed`: time of the fixed computation ÷ its best", "times"),
        ("analysis.measured", "RESIDUAL", "`large residual`: share of the native step", "%"),
        ("worker.tasks", "SUBNORMAL", "`subnormal`: share of the parameters or gradients", "%"),
    ),
    "Communication, predictions": (
        ("analysis.links", "LATE_S", "a sample that a rank begins later than this is discarded,", "s"),
        ("analysis.links", "LATE", "or later than this share of it, plus the clock's error", "%"),
        ("analysis.links", "LEAST", "fewest samples of a figure", ""),
        ("analysis.stats", "LARGEST_ERROR", "error above which a fitted figure is “not determined”", "%"),
        ("predict.prediction", "TRUSTED", "error above which a page calls the model wrong", "%"),
    ),
    "Proofs": (
        ("worker.evidence", "UPDATES", "updates", ""),
        ("proofs.make", "DECAY", "weight decay, if the case has none", ""),
        ("proofs.tolerances", "TIMES", "allowed error ÷ the effect of rounding", ""),
        ("proofs.tolerances", "MOST", "largest allowed error", ""),
    ),
}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("|  |", "| |")


def listed(rows: Iterable[tuple[str, str]]) -> str:
    """Return a Markdown list of terms and their meanings."""
    return "".join(f"- **{term}**: {meaning}\n" for term, meaning in rows)


def number(value: float, unit: str) -> str:
    """Return a constant as the page shows it; a share as per cent."""
    return f"{100 * value:.4g} %" if unit == "%" else f"{value:g} {unit}".strip()


def thresholds() -> str:
    """Return a list for each group of thresholds."""
    groups = []
    for heading, constants in THRESHOLDS.items():
        rows = [
            (number(getattr(import_module(f"stagebench.suite.{module}"), name), unit), meaning)
            for module, name, meaning, unit in constants
        ]
        groups.append(f"## {heading}\n\n{listed(rows)}")
    return "\n".join(groups)


def frameworks() -> str:
    """Return the table of adapters and the strategies by which they train; of those that only infer, that one."""

    def names(offered: Sequence[Strategy]) -> str:
        return ", ".join(f"`{each.name}`" for each in [each for each in offered if not each.infers] or offered)

    rows = [(f"`{each.name}`", each.title, names(each.capabilities.strategies)) for each in adapters().values()]
    return table(("adapter", "framework", "strategies"), rows)


def versions() -> str:
    """Return the table of the releases that environments pin, by the Pythons that these may have."""
    by_python: dict[str, dict[str, None]] = {}
    for name, made in declared().items():
        pinned = re.findall(r"^([\w-]+)==([\w.]+)", "\n".join(pins(made.file)), re.MULTILINE)
        if pinned and not name.startswith("mpi-"):
            release = f"{'Horovod over ' if name.startswith('horovod') else ''}{' '.join(pinned[0])}"
            by_python.setdefault(made.head.python.replace("-", " to "), {})[release] = None
    return table(("Python", "releases"), [(python, ", ".join(each)) for python, each in by_python.items()])


def shown() -> str:
    """Return what `stagebench show` prints first of the run in the pictures, as `tox run -e sample` keeps it."""
    return f"```text\n{(ROOT / 'reports' / 'sample' / 'show.txt').read_text()}```\n"


def tolerances() -> str:
    """Return the table of a proof's fixed bounds, by precision."""
    heads = ("precision", "first loss", "later losses", "logits", "gradients", "parameters", "updates", "rounded to")
    fields = ("loss", "later_loss", "logits", "gradient", "parameter", "movement")
    rows = [
        (f"`{name}`", *(f"{getattr(bounds, field):.0e}".replace("e-0", "e-") for field in fields), rounded(name))
        for name, bounds in FIXED.items()
    ]
    return table(heads, rows)


def rounded(precision: str) -> str:
    """Return the bits to which the oracle rounds for a precision."""
    return f"{BITS[precision]} bits" if precision in BITS else ""


MADE: dict[str, Callable[[], str]] = {
    "frameworks": frameworks,
    "passes": lambda: table(
        ("pass", "what runs", "yields"),
        [(f"`{kind.name}`", kind.runs, kind.yields) for kind in PASS_KINDS if not kind.infers],
    ),
    "excluding-marks": lambda: listed(DISQUALIFYING.items()),
    "noted-marks": lambda: listed(NOTED.items()),
    "thresholds": thresholds,
    "shown": shown,
    "versions": versions,
    "tolerances": tolerances,
}


def renewed(text: str) -> str:
    """Return a page with its tables made anew."""
    return BLOCK.sub(lambda block: block[1] + MADE[block[2]]() + block[3], text)


def pages() -> list[Path]:
    """Return the pages that may have such tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        before = page.read_text()
        after = renewed(before)
        if after != before:
            page.write_text(after)
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")
