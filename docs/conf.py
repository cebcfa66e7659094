"""How Sphinx builds these pages into a static site: `tox run -e site`.

Pages of results get their tables here, from the JSON files next to them.
"""

import json
import sys
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


def tables(name: str) -> str:
    """Return what the website adds to a page."""
    if name == "trust":
        return "".join(trust.section(each) for each in trust.results(DOCS / "trust").values())
    if name == "planted-mistakes":
        rows = json.loads((DOCS / "planted-mistakes.json").read_text())
        lines = [f"| {mistake} | ``{problem}`` |" for mistake, problem in rows.items()]
        return "\n".join(["", "## All of them", "", "| mistake | the first problem |", "|---|---|", *lines, ""])
    return ""


def setup(app) -> None:
    """Add the tables to the pages as Sphinx reads them."""
    app.connect("source-read", lambda _, name, source: source.append(source.pop() + tables(name)))
