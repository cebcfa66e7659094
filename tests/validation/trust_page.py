"""docs/trust.md: a summary of what the checks found."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from figures import kept, settled
from trust_figures import Result, bound, number, percent, results, section, short

from stagebench.suite.results.records import METHOD
from stagebench.suite.worker.noise import BUSY, STOLEN

if TYPE_CHECKING:
    from trust import Check

NETWORK = re.compile(
    r"^(?:(?:pytorch|tensorflow|mxnet|cntk|jax|Caffe-MPI), )?(?:alexnet|googlenet|resnet50|mnist_small|mnist_large)"
    r"(?:, layerwise|, 2 hosts)?[,:] "
)
MOST_KINDS = 3  # of figures that a cell holds
LOSSES = "difference of the "  # losses, or first losses: kept bounds of these are left to the tables of all figures
ABOUT = """\
# How far to trust it

Every claim of stagebench about itself is checked against something else: a hand-written loop, a simulation,
a busy machine.

- **Speeds are those of the frameworks.** The adapters' native steps are at most 1 % slower than hand-written loops, and
  faster than what many users write.
- **Measuring costs next to nothing**, and stages agree with the frameworks' own profilers.
- **Verdicts are seldom wrong**: in 6.4 % of groups of equal cases at worst
  ([how often](comparisons.md#how-often-a-verdict-is-wrong)).

[Validation](validation.md) checks predictions and comparisons of runs.

A check waits until other programs use less than {busy} of the processors, and other guests of the machine less than
{stolen}. If a bound is inside the interval of its figure, it is *not settled*. A check that
ran once has intervals within one process. In the checks of native steps, `plain`
and `tricks` are hand-written loops, the others an ordinary user's; losses that agree are left out below.

`tox run -e trust` runs the checks without a result of this method and writes this page after each. If stopped, the same
command continues; `-- --only NAME` runs one check, `-- --again` all. The files of `docs/trust/` hold every figure.
"""


def page(folder: Path, checks: Sequence["Check"], figures: bool = False) -> str:
    """Return the page of the results in a folder; `figures`: with all of them, as on the website."""
    found = results(folder)
    rows = [f"| {each.question} | {_result(found[each.name])} |\n" for each in checks if each.name in found]
    table = f"\n| check | result |\n|---|---|\n{''.join(rows)}"
    missing = ", ".join(f"`{each.name}`" for each in checks if each.name not in found)
    table += f"\nNot run yet: {missing}.\n" if missing else ""
    sections = "".join(section(each, busy(each)) for each in found.values()) if figures else ""
    return (
        f"{ABOUT.format(busy=percent(BUSY), stolen=percent(STOLEN))}\n{_summary(found, len(checks))}{table}{sections}"
    )


def _summary(found: Mapping[str, Result], checks: int) -> str:
    figures = [(name, each) for name, result in found.items() for each in result.get("figures", ())]
    bounded = [each for _, each in figures if kept(each) is not None]
    broken = [(name, each) for name, each in figures if kept(each) is False]
    unsettled = sum(bool(kept(each)) and settled(each) is False for each in bounded)
    words = f"{len(found)} of {checks} checks were run; {len(bounded) - len(broken)} of {len(bounded)} bounds are kept"
    lines = [f"{words}, {unsettled} of these not settled." if unsettled else f"{words}."]
    lines += ["", "Not kept:", ""] if broken else []
    lines += [f"- {name}: {each['what']}: {number(each)}, {bound(each)} wanted" for name, each in broken]
    methods = defaultdict(list)
    for name, result in found.items():
        methods[result["method"]].append(f"`{name}`")
    older = sorted((method for method in methods if method < METHOD), reverse=True)
    heading = f"Results of an older [method](record-format.md#method) than the newest, {METHOD}:"
    lines += ["", heading, ""] if older else []
    lines += [f"- of method {method}: {', '.join(methods[method])}" for method in older]
    return "\n".join(lines) + "\n"


def _result(result: Result) -> str:
    """Return a check's figures in a cell: those with bounds, of several networks the smallest and the largest."""
    if "failed" in result:
        return f"failed: {result['failed']}"
    bounded = [each for each in result["figures"] if kept(each) is not None]
    kinds: dict[str, list[Result]] = defaultdict(list)
    for each in bounded or result["figures"]:
        if not (LOSSES in each["what"] and kept(each)):
            kinds[NETWORK.sub("", each["what"])].append(each)
    if len(kinds) > MOST_KINDS:
        return f"{sum(kept(each) is True for each in bounded)} of {len(bounded)} bounds are kept"
    words = [kind.split(", ") for kind in kinds]
    same = set.intersection(*map(set, words)) if len(words) > 1 and min(map(len, words)) > 1 else set()
    names = (", ".join(part for part in parts if part not in same) for parts in words)  # the question says the rest
    return "; ".join(f"{name}: {_range(figures)}" for name, figures in zip(names, kinds.values(), strict=True))


def _range(figures: Sequence[Result]) -> str:
    values = [each["value"] for each in figures if each["value"] is not None]
    if len({*map(short, values)}) < 2 or len(values) < len(figures):
        return number(figures[0])
    return f"{short(min(values))} to {short(max(values))} {figures[0]['unit']}".strip()


def busy(result: Result) -> list[str]:
    """Return what disturbed the machine before a check and during it."""
    times = (("before the check", result.get("others_before")), ("during it", result.get("others_meanwhile")))
    return [
        f"others used {percent(shares['used'])} of the processors {when}, other guests {percent(shares['stolen'])}"
        for when, shares in times
        if shares and (shares["used"] > BUSY or shares["stolen"] > STOLEN)
    ]
