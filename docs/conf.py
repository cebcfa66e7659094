"""How Sphinx builds these pages into a static site: `tox run -e site`.

Pages of results get their tables here, from the JSON files next to them.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

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
        return "".join(predicted(part) for part in ("prediction", "stages")) + compared()
    return ""


def predicted(part: str) -> str:
    """Return the table of predictions of one part of the page of validation."""
    found = json.loads((DOCS / "validation" / f"{part}.json").read_text())
    rows = [
        {
            "where": where,
            "case": one["case"],
            "measured, samples/s": "{value:.4g} ({low:.4g} to {high:.4g})".format_map(one["measured"]),
            "predicted": f"{one['predicted']:.4g}",
            "error": f"{one['error']:+.1%}",
        }
        for where, several in found["settings"].items()
        for one in several
    ]
    return table(f"Predictions: {part}", rows)


def compared() -> str:
    """Return the table of changes that `history` finds."""
    found = json.loads((DOCS / "validation" / "comparing.json").read_text())
    changes = {f"3 %, {what}": one for what, one in found["slow_downs"].items()} | found["changes"]
    rows = [
        {
            "a change of": what,
            "found within one run": f"{one['within_one_run']:.1%}",
            "steady series with a change": f"{one['steady_with_a_change']:.1%}",
        }
        for what, one in changes.items()
    ]
    return table("Changes that are found", rows)


def setup(app) -> None:
    """Add the tables to the pages as Sphinx reads them."""
    app.connect("source-read", lambda _, name, source: source.append(source.pop() + tables(name)))
