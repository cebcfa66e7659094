"""What a site of many cases costs: python -m tests.benchmarks.big_site [CASES]; 10,000 in about half a minute.

Makes a run of simulated records, then its pages, and says the processor time and the memory that the pages took. Where
playwright and Chromium are installed, also how long the first page takes until its table and its chart stand.
The last line is JSON, as tests/benchmarks/trust.py reads it.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reports.site import write
from suite.results.records import FORMAT
from suite.results.run_folder import RunFolder
from tests.reports.made_run import MadeRun, case_of, proof_of, record_of
from tests.reports.sample import CHROMIUM

NETWORKS = ("alexnet", "resnet50", "mnist_small")
ADAPTERS = ("pytorch", "caffempi", "reference")


def made(path: Path, count: int) -> RunFolder:
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
    return run.folder


def seconds_until_shown(page: Path) -> float | None:
    """Wall time in a browser that has started; None without one."""
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
        tab.wait_for_selector(".chart svg")
        return time.monotonic() - began


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with TemporaryDirectory() as place:
        folder = made(Path(place) / "run", count)
        before = os.times()
        site = write(folder, Path(place) / "site").parent
        after = os.times()
        first = [site / "index.html", *(site / "assets").glob("[!p]*"), site / "data" / "cases-0.js"]
        size = sum(path.stat().st_size for path in first) / 1000
        shown = seconds_until_shown(site / "index.html")
    seconds = after.user + after.system - before.user - before.system
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    figures: list[dict[str, Any]] = [
        {"what": f"{count} cases: processor time", "value": round(seconds, 1), "unit": "s", "at_most": 20},
        {"what": f"{count} cases: memory", "value": round(memory), "unit": "MiB", "at_most": 1024},
        {"what": "first page besides plotly.js", "value": round(size), "unit": "kB", "at_most": 300},
    ]
    if shown is not None:
        figures.append({"what": "first page until it answers", "value": round(shown, 2), "unit": "s", "at_most": 2})
    print(json.dumps({"figures": figures}))
    return int(any(one["value"] > one["at_most"] for one in figures))


if __name__ == "__main__":
    sys.exit(main())
