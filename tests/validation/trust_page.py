"""docs/trust.md, from what the checks found."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import kept, settled

from suite.results.records import METHOD
from suite.worker.noise import BUSY, STOLEN

if TYPE_CHECKING:
    from trust import Check

HISTORY = Path(__file__).resolve().parents[2] / "docs" / "record-format.md"
ABOUT = """\
# How far to trust it

What stagebench says of itself, checked against something else: a loop written by hand, a simulation, a busy
machine. `tox run -e trust` runs the checks again and writes this page; `tox run -e trust -- --only NAME`
runs one of them. [Validation](validation.md) says how good predictions and comparisons of runs are.

The line below a question says on which commit and by which [method](record-format.md#method) it was answered, and how
idle the machine was: a check waits until others use less than {busy} of the processors, and other guests of the machine
less than {stolen}. The load is that of the minute before, most of which was the check before. A bound that lies inside
the interval is *not settled*: the value keeps it, or does not, but another measurement could say otherwise. Where a
command ran several times, a value is the median of its runs; one without an interval is the largest of them.

In the checks of native steps, more than 1 means that the adapter is faster. `plain` and `tricks` are hand-written
loops. `keras` is Keras' compiled training, `trainer` is MXNet's `gluon.Trainer` as its documentation teaches it, and
`usual` is an ordinary user's CNTK loop. `own lrn` is the adapter with MXNet's own LRN operator.
"""

Result = Mapping[str, Any]


def page(folder: Path, checks: Sequence["Check"]) -> str:
    """The page of the results in a folder."""
    places = {each.name: folder / f"{each.name}.json" for each in checks}
    results = {name: json.loads(path.read_text()) for name, path in places.items() if path.exists()}
    lines = [
        ABOUT.format(busy=_percent(BUSY), stolen=_percent(STOLEN)),
        *_summary(results, len(checks)),
        *_older(results),
    ]
    for check in checks:
        lines += ["", f"## {check.question}", "", *_section(check, results.get(check.name))]
    return "\n".join(lines) + "\n"


def _summary(results: Mapping[str, Result], checks: int) -> list[str]:
    figures = [(name, each) for name, result in results.items() for each in result.get("figures", ())]
    bounded = [each for _, each in figures if kept(each) is not None]
    broken = [(name, each) for name, each in figures if kept(each) is False]
    unsettled = sum(bool(kept(each)) and settled(each) is False for each in bounded)
    words = (
        f"{len(results)} of {checks} checks were run; {len(bounded) - len(broken)} of {len(bounded)} bounds are kept"
    )
    lines = [f"{words}, {unsettled} of these not settled." if unsettled else f"{words}."]
    if broken:
        told = [f"- {name}: {each['what']}: {_number(each)}, {_bound(each)} wanted" for name, each in broken]
        lines += ["", "Not kept:", "", *told]
    return lines


def _older(results: Mapping[str, Result]) -> list[str]:
    """Which results are of an older method, and what was defined anew since the oldest of them."""
    older = {name: result["method"] for name, result in results.items() if result["method"] < METHOD}
    if not older:
        return []
    named = [
        f"- of method {method}: {', '.join(f'`{name}`' for name, each in older.items() if each == method)}"
        for method in sorted(set(older.values()), reverse=True)
    ]
    since = [f"- method {method}: {text}" for method, text in _methods() if method > min(older.values())]
    lines = ["", f"Results of an older method than the newest, {METHOD}:", "", *named]
    if since:
        lines += ["", "What methods since then define anew, in short ([in full](record-format.md#method)):", "", *since]
    return lines


def _methods() -> list[tuple[int, str]]:
    """(number, the first sentence of its history) of each method, the newest first."""
    table = HISTORY.read_text().partition("\n## Method\n")[2].partition("\n## ")[0]
    return [(int(number), text) for number, text in re.findall(r"^\| (\d+) \| (.*?\.)(?: .*)? \|$", table, re.M)]


def _section(check: "Check", result: Result | None) -> list[str]:
    if result is None:
        return [f"Not run yet: `tox run -e trust -- --only {check.name}`."]
    lines = [f"Check `{check.name}`. {_about(result)}"]
    if result["method"] < METHOD:
        lines += ["", f"**Of method {result['method']}; the newest is {METHOD}.**"]
    lines += _disturbed(result)
    if "remark" in result:  # written by hand; the next run drops it
        lines += ["", f"**{result['remark']}**"]
    if "failed" in result:
        return [*lines, "", f"It failed: {result['failed']}"]
    lines += ["", "| figure | value | 95 % interval | bound | kept |", "|---|---|---|---|---|"]
    for each in result["figures"]:
        interval = f"{_short(each['low'])} … {_short(each['high'])}" if "low" in each else ""
        verdict = {None: "", True: "yes", False: "**no**"}[kept(each)] + " (not settled)" * (settled(each) is False)
        lines.append(f"| {each['what']} | {_number(each)} | {interval} | {_bound(each)} | {verdict} |")
    return lines


def _about(result: Result) -> str:
    host, (sha, _, dirty) = result["machine"], result["commit"].partition("-")
    measured = f"{result.get('commit_is', '')} {sha[:10] or 'unknown'}{' with changes' if dirty else ''}".strip()
    where = f"{host['cpu'] or 'unknown processor'}, {host['cores']} cores, {host['os'] or 'unknown system'}"
    others = result.get("others_meanwhile")
    quiet = (
        f"others used {_percent(others['used'])} of the processors meanwhile"
        if others
        else "what others used was not measured"
    )
    often = f", {result['runs']} times" if result.get("runs", 1) > 1 else ""
    what = f"{result['date']}, commit {measured}, method {result['method']}; {where}"
    noise = f"load {result['load'][0]:g} before it, {quiet}"
    return f"{what}; {noise}; {result['seconds']} s: `{result['command']}`{often}"


def _disturbed(result: Result) -> list[str]:
    """That the machine was not idle, if it was not."""
    told = []
    for words, shares in (("before it", result.get("others_before")), ("meanwhile", result.get("others_meanwhile"))):
        if shares and (shares["used"] > BUSY or shares["stolen"] > STOLEN):
            used, stolen = _percent(shares["used"]), _percent(shares["stolen"])
            told.append(f"others used {used} of the processors {words}, other guests {stolen}")
    return ["", f"**The machine was not idle**: {'; '.join(told)}."] if told else []


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _number(found: Result) -> str:
    if found["value"] is None:
        return str(found.get("why", "not measured"))
    return f"{_short(found['value'])} {found['unit']}".strip()


def _bound(found: Result) -> str:
    least, most = found.get("at_least"), found.get("at_most")
    if least is not None and most is not None and least == -most:
        return f"within ± {_short(most)}"
    ends = [("at least", least), ("at most", most)]
    return " and ".join(f"{word} {_short(value)}" for word, value in ends if value is not None)


def _short(value: float) -> str:
    return f"{value:.4g}"
