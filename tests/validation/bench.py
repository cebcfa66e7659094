"""How long until `tox run -m bench` has an answer, and what there is by then.

    python tests/validation/bench.py               # 18 minutes

Runs what that command runs once the frameworks' environments and the data stand, into a scratch folder: the quick plan
for 17 minutes, and the report. Making the environments is a matter of the network, and not measured. There is no proof
yet, as on a machine that has never made one: all 24 are made meanwhile, and are in the whole.
A chart stands when each row that may be compared with the plan's first one has its first record.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from figures import figure, told

from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.files import VARIABLE, cache_root
from stagebench.suite.results.run_folder import RunFolder

MINUTES, FIRST_CHART_S, PROCESSES = 20.0, 120.0, 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", default="quick")
    parser.add_argument("--for", dest="limit", default="17min")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run, began = Path(scratch) / "run", time.time()
        without_proofs(Path(scratch) / "cache")
        stagebench("run", asked.plan, "--for", asked.limit, "-o", str(run))
        stagebench("report", str(run), "-o", str(run / "report"))
        return told(figures(RunFolder.open(run), began, time.time()))


def without_proofs(cache: Path) -> None:
    """Let stagebench use a cache that has all of this machine's but what proofs leave there."""
    there = cache_root()
    cache.mkdir()
    for each in there.iterdir() if there.is_dir() else ():
        if each.name not in ("proofs", "oracles"):
            (cache / each.name).symlink_to(each)
    os.environ[VARIABLE] = str(cache)


def stagebench(*words: str) -> None:
    """A case may fail (1); the report is written all the same, as in `tox run -m bench`."""
    done = subprocess.run(
        [sys.executable, "-m", "stagebench.suite.cli", *words], check=False, stdout=subprocess.DEVNULL
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"stagebench {' '.join(words)} ended with {done.returncode}")


def figures(folder: RunFolder, began: float, ended: float) -> list[dict[str, object]]:
    """Of a run whose command was given at `began`, and whose report stood at `ended` (seconds since 1970)."""
    rows = [row for row in summarise(folder) if row.outcome not in ("unsupported", "unavailable")]
    started = [datetime.fromisoformat(record.started).timestamp() for record in folder.records()]
    if not started:
        return [figure("cases measured", 0, at_least=1)]
    first, network = min(started), rows[0].case.workload
    chart = stands(folder, (row for row in rows if row.group == rows[0].group), first)
    whole = stands(folder, (row for row in rows if row.case.workload == network), first)
    counts = [len(row.rates.by_round) if row.rates else 0 for row in rows]
    networks = {row.case.workload for row in rows}
    judged = {row.case.workload for row in rows if row.against and not row.against.verdict.startswith("no verdict")}
    why = "a case has no record"
    return [
        figure("until the report exists", (ended - began) / 60, "min", at_most=MINUTES),
        figure("from the command to the first measurement: checks, and the first proofs", first - began, "s"),
        figure("from the first measurement until the first chart exists", chart, "s", at_most=FIRST_CHART_S, why=why),
        figure(f"the same, of every case of {network}", whole, "s", why=why),
        figure(f"cases measured, of {len(rows)}", sum(map(bool, counts)), at_least=len(rows)),
        figure("processes of the case with fewest", min(counts), at_least=PROCESSES),
        figure(f"networks with a verdict, of {len(networks)}", len(judged), at_least=len(networks)),
    ]


def stands(folder: RunFolder, rows: Iterable[Row], first: float) -> float | None:
    """Seconds from `first` until each of these had its first record; None where one has none."""
    paths = [list((folder.path / "records").glob(f"{row.id}-r*.json")) for row in rows]
    return max(min(path.stat().st_mtime for path in own) for own in paths) - first if all(paths) else None


if __name__ == "__main__":
    sys.exit(main())
