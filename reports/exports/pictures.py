"""Every chart of a run as a picture, in the light colours: SVG, and PNG where a browser is installed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from reports.pages.comm import bandwidths, panels_of, times
from reports.pages.run import Chart, Report
from reports.site.build import sections_of
from reports.site.frame import made
from suite.analysis.links import links
from suite.analysis.summary import summarise
from suite.files import scratch, write_whole
from suite.results.run_folder import RunFolder
from suite.worker.homes import without_homes

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCALE = 2  # pixels of a PNG for each of an SVG
LIMIT = 60  # seconds for a browser to draw one


def charts_of(folder: RunFolder) -> Iterator[tuple[str, Chart]]:
    """Yield every chart by the name of its file."""
    if folder.about.of_comm:
        measured = [link for link in links(folder) if link.singles and not link.network]
        for index, panel in enumerate(panels_of(measured)):
            yield f"links-{index}-time", times(panel)
            yield f"links-{index}-bandwidth", bandwidths(panel)
        return
    report = Report(folder, summarise(folder))
    sections_of(report)
    yield from report.charts.items()


def as_charts(folder: RunFolder, directory: Path) -> None:
    """Write NAME.svg of every chart, and NAME.png where there is a browser (STAGEBENCH_CHROMIUM may name one)."""
    browser = os.environ.get("STAGEBENCH_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    for name, chart in charts_of(folder):
        path = made(directory) / f"{name}.svg"
        write_whole(path, without_homes(chart.svg()))
        if browser:
            _photograph(browser, path)


def _photograph(browser: str, path: Path) -> None:
    """Write the PNG next to an SVG; a browser that cannot draw it leaves none."""
    width, height = (round(float(part)) for part in path.read_text().split('viewBox="0 0 ')[1].split('"')[0].split())
    with scratch() as place:
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()  # where a browser starts in no other way
        options = ("--headless=new", *root, "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={place}")
        drawn = (
            f"--force-device-scale-factor={SCALE}",
            f"--window-size={width},{height}",
            f"--screenshot={path.resolve().with_suffix('.png')}",
        )
        subprocess.run(
            [browser, *options, *drawn, path.resolve().as_uri()], timeout=LIMIT, check=False, capture_output=True
        )
