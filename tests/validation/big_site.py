"""What a site of many cases costs: seconds, those of processors among them, memory, and its first page in a browser.

    python tests/validation/big_site.py [CASES] [--in FOLDER]    # 10,000: a minute

The run is simulated (tests/reports/made_run.py), one process a case; FOLDER keeps it. The first page is opened where
playwright and Chromium are installed.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))

from figures import figure, told

from stagebench.reports.site.build import write
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import FORMAT
from tests.reports.made_run import MadeRun, case_of, proof_of, record_of
from tests.reports.sample import CHROMIUM

NETWORKS = ("alexnet", "resnet50", "mnist_small")
ADAPTERS = ("pytorch", "caffempi", "reference")


def make(path: Path, count: int) -> None:
    """A run of so many cases, each of one process."""
    run, entries = MadeRun(path), []
    for index in range(count):
        case = case_of(
            ADAPTERS[index % 3],
            NETWORKS[index // 3 % 3],
            (1, 2, 4)[index // 9 % 3],
            batch=8 * (1 + index // 27 % 20),
            seed=1 + index // 540,
        )
        proof = proof_of(case)
        run.write(f"proofs/{proof['key']}.json", proof)
        run.write(f"records/{case.id}-r0.json", record_of(case, 0, proof))
        entries.append({"id": case.id, "case": case.to_dict(), "outcome": None, "reason": ""})
    run.write("cases.json", {"format": FORMAT, "cases": entries})


def seconds_until_shown(page: Path, cases: int) -> tuple[float, float] | None:
    """Wall time in a browser that has started, until the first rows and until all cases; None without a browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if not CHROMIUM:
        return None
    with sync_playwright() as started:
        tab = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page()
        began = time.monotonic()
        tab.goto(page.as_uri())
        tab.wait_for_selector("#listed tbody tr")
        tab.wait_for_selector(".plot svg")
        shown = time.monotonic() - began
        tab.locator("input[type=search]").fill("pytorch")
        tab.locator("output", has_text="shown").wait_for()
        return shown, time.monotonic() - began


def kilobytes(files: list[Path]) -> float:
    return sum(file.stat().st_size for file in files) / 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=int, nargs="?", default=10_000)
    parser.add_argument("--in", dest="folder", type=Path)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    with TemporaryDirectory() as scratch:
        path: Path = asked.folder or Path(scratch) / "run"
        if not path.exists():
            make(path, asked.cases)
        if not asked.measure:  # in a process of its own, which has made nothing
            again = [str(asked.cases), "--in", str(path), "--measure"]
            return subprocess.call([sys.executable, __file__, *again])
        began, before = time.perf_counter(), os.times()[:4]
        site = write(RunFolder.open(path), Path(scratch) / "site").parent
        seconds, used = time.perf_counter() - began, sum(os.times()[:4]) - sum(before)
        most = [resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        page, pieces = [site / "index.html"], [*(site / "data").glob("cases-*.js")]
        first, fetched = kilobytes(page), kilobytes([*page, *pieces])
        shown = seconds_until_shown(site / "index.html", asked.cases)
    found = [
        figure(f"{asked.cases:,} cases", seconds, "s", at_most=12),
        figure("the same, of processors", used, "s"),
        figure("memory at most", sum(most) / 1e6, "GB", at_most=0.7),
        figure("first page", first, "kB", at_most=300),
        figure("all that a search on the first page fetches", fetched, "kB"),
    ]
    if shown is not None:
        found.append(figure("first page until its table and chart are drawn", shown[0], "s", at_most=1))
        found.append(figure("first page until its table has every case", shown[1], "s"))
    return told(found)


if __name__ == "__main__":
    sys.exit(main())
