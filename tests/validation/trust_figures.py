"""The figures of the checks as Markdown, from the JSON files of docs/trust; docs/conf.py adds them to the website.

Standard library only: the environment that builds the website has no more.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from figures import kept, settled

Result = Mapping[str, Any]


def results(folder: Path) -> dict[str, Result]:
    """Return the results that a folder holds, by the names of their checks."""
    found = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))
    return {each["name"]: each for each in found}


def section(result: Result, busy: Sequence[str] = ()) -> str:
    """Return a check's figures; `busy`: what disturbed the machine."""
    lines = ["", f"## {result['name']}", "", about(result)]
    if busy:
        lines += ["", f"**The machine was not idle**: {'; '.join(busy)}."]
    if "remark" in result:  # written by hand; the next run drops it
        lines += ["", f"**{result['remark']}**"]
    if "failed" in result:
        return "\n".join([*lines, "", f"It failed: {result['failed']}", ""])
    lines += ["", "| figure | value | 95 % interval | bound | kept |", "|---|---|---|---|---|"]
    for each in result["figures"]:
        interval = f"{short(each['low'])} … {short(each['high'])}" if "low" in each else ""
        verdict = {None: "", True: "yes", False: "**no**"}[kept(each)] + " (not settled)" * (settled(each) is False)
        lines.append(f"| {each['what']} | {number(each)} | {interval} | {bound(each)} | {verdict} |")
    return "\n".join([*lines, ""])


def about(result: Result) -> str:
    """Return when, where and how a check ran."""
    host, (sha, _, dirty) = result["machine"], result["commit"].partition("-")
    measured = f"{result.get('commit_is', '')} {sha[:10] or 'unknown'}{' with changes' if dirty else ''}".strip()
    where = f"{host['cpu'] or 'unknown processor'}, {host['cores']} cores, {host['os'] or 'unknown system'}"
    others = result.get("others_meanwhile")
    quiet = (
        f"others used {percent(others['used'])} of the processors during the check"
        if others
        else "the use by others was not measured"
    )
    often = f", {result['runs']} times" if result.get("runs", 1) > 1 else ""
    what = f"{result['date']}, commit {measured}, method {result['method']}. {where}"
    return (
        f"{what}. Load {result['load'][0]:g} before it, {quiet}. {result['seconds']} s: `{result['command']}`{often}."
    )


def percent(share: float) -> str:
    """Return a share as per cent."""
    return f"{100 * share:.3g} %"


def number(found: Result) -> str:
    """Return a figure's value with its unit, or why it has none."""
    if found["value"] is None:
        return str(found.get("why", "not measured"))
    return f"{short(found['value'])} {found['unit']}".strip()


def bound(found: Result) -> str:
    """Return a figure's bound in words."""
    least, most = found.get("at_least"), found.get("at_most")
    if least is not None and most is not None and least == -most:
        return f"within ± {short(most)}"
    ends = [("at least", least), ("at most", most)]
    return " and ".join(f"{word} {short(value)}" for word, value in ends if value is not None)


def short(value: float) -> str:
    """Return four digits of a number."""
    return f"{value:.4g}"
