"""The README's pictures and what `show` prints first, of a run with its report; `tox run -e sample` makes all.

python tests/reports/sample.py RUN/report FOLDER [--all]

--all: every page of the report, whole, at three widths: to look at before a release.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from stagebench.reports.pages.run import CASE

CHROMIUM = os.environ.get("STAGEBENCH_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
PAGES = {"index.html": "report.png", "stages.html": "stages.png", "scaling.html": "scaling.png"}
WIDTH, HEIGHT = 1000, 1100  # CSS pixels
WIDTHS = (360, 1000, 1600)
SHOWN, LINES = "show.txt", 10  # of the terminal: down to the first comparison


def pictures(browser: Any, report: Path, folder: Path) -> list[Path]:
    """Write them in the light scheme, as they open."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    for address, name in PAGES.items():
        page.goto((report / address).resolve().as_uri())
        page.screenshot(path=folder / name)
    page.close()
    return [folder / name for name in PAGES.values()]


def shown(run: Path) -> str:
    """Return the first lines that `stagebench show` prints."""
    command, environ = [sys.executable, "-m", "stagebench.suite.cli", "show", str(run)], {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines()[:LINES])


def address_of(path: Path) -> str:
    """A page's address; `case.html` with some case of its run."""
    address = path.resolve().as_uri()
    if path.name != CASE:
        return address
    first = next(iter(sorted((path.parent / "data").glob("case-*.js")))).read_text()
    return f"{address}#{first[first.index('{') + 2 :][:12]}"


def every_picture(browser: Any, report: Path, folder: Path) -> None:
    """PAGE-WIDTH.png of every page, from its top to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme="light")
        for path in sorted(report.glob("*.html")):
            page.goto(address_of(path))
            page.wait_for_timeout(200)  # for a case's data
            page.screenshot(path=folder / f"{path.stem}-{width}.png", full_page=True)
        page.close()


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        drawn = every_picture if "--all" in sys.argv else pictures
        drawn(chromium, Path(sys.argv[1]), Path(sys.argv[2]))
    if drawn is pictures:
        (Path(sys.argv[2]) / SHOWN).write_text(shown(Path(sys.argv[1]).parent))
