"""How Sphinx builds these pages into a static site: `tox run -e site`.

Pages of results get their tables here, from the JSON files next to them.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests" / "validation"))

trust = import_module("trust_figures")

project = "stagebench"
author = "the stagebench authors"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "stagebench"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
exclude_patterns = ["_build"]


def table(title: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Return a section with a table of rows that have equal keys."""
    cells = [rows[0], ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "\n".join(["", f"## {title}", "", *(f"| {' | '.join(map(str, each))} |" for each in cells), ""])


def tables(name: str) -> str:
    """Return what the website adds to a page."""
    if name == "trust":
        return "".join(trust.section(each) for each in trust.results(DOCS / "trust").values())
    if name == "planted-mistakes":
        mistakes = json.loads((DOCS / "planted-mistakes.json").read_text())
        return table(
            "All of them", [{"mistake": name, "first problem": f"``{each}``"} for name, each in mistakes.items()]
        )
    if name == "faults":
        return table("The faults", json.loads((DOCS / "faults.json").read_text()))
    if name == "validation":
        parts = "".join(predicted(part) for part in ("prediction", "stages"))
        return parts + table("Published measurements, each", kept("published")) + compared()
    return ""


def kept(name: str) -> Any:
    """Return the results of one part of the page of validation."""
    return json.loads((DOCS / "validation" / f"{name}.json").read_text())


def predicted(part: str) -> str:
    """Return the table of predictions of one part of the page of validation."""
    rows = [
        {
            "where": where,
            "case": one["case"],
            "measured, samples/s": "{value:.4g} ({low:.4g} to {high:.4g})".format_map(one["measured"]),
            "predicted": f"{one['predicted']:.4g}",
            "error": f"{one['error']:+.1%}",
        }
        for where, several in kept(part)["settings"].items()
        for one in several
    ]
    return table(f"Predictions: {part}", rows)


def compared() -> str:
    """Return the tables of equal runs that are called different, and of changes that `history` finds."""
    found = kept("comparing")
    shares = found["equal"] | {
        f"runs differ; {what}": share for what, share in found["equal_while_runs_differ"].items()
    }
    equal = [{"equal runs": what, "called different": f"{share:.1%}"} for what, share in shares.items()]
    changes = {f"3 %, {what}": one for what, one in found["slow_downs"].items()} | found["changes"]
    rows = [
        {
            "a change of": what,
            "found within one run": f"{one['within_one_run']:.1%}",
            "steady series with a change": f"{one['steady_with_a_change']:.1%}",
        }
        for what, one in changes.items()
    ]
    return table("Equal runs", equal) + table("Changes that are found", rows)


def setup(app) -> None:
    """Add the tables to the pages as Sphinx reads them."""
    app.connect("source-read", lambda _, name, source: source.append(source.pop() + tables(name)))
