"""What it costs to make rows of a large run: seconds and peak memory of `summarise`.

    python tests/benchmarks/summarise.py [--cases 10000] [--in FOLDER]

The run is simulated (tests/reports/made_run.py): five records a case, of one to four ranks, every pass of 40 steps.
It is made once where FOLDER keeps it; 10,000 cases are 2.5 GB.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from suite.analysis.summary import summarise
from suite.results.records import CaseEntry
from suite.results.run_folder import RunFolder
from tests.reports.made_run import MadeRun, case_of, proof_of, record_of

PROCESSES, SECONDS, GIGABYTES = 5, 20.0, 1.0  # of 10,000 cases


def make(path: Path, cases: int) -> None:
    """Groups of two adapters, one and two ranks, with and without a proof's neighbours."""
    run, entries = MadeRun(path), []
    every = product(range(cases), ("pytorch", "caffempi"), (1, 2))
    for batch, adapter, ranks in islice(every, cases):
        case = case_of(adapter, "mnist_small", ranks, batch=batch + 1)
        proof = proof_of(case)
        run.write(f"proofs/{proof['key']}.json", proof)
        for repeat in range(PROCESSES):
            run.write(f"records/{case.id}-r{repeat}.json", record_of(case, repeat, proof))
        entries.append(CaseEntry(id=case.id, case=case))
    run.folder.write_cases(entries)


def measured(path: Path) -> tuple[float, float]:
    """(seconds, GB) of a process that does nothing else."""
    begin = time.perf_counter()
    rows = summarise(RunFolder.open(path))
    seconds = time.perf_counter() - begin
    assert all(row.rate for row in rows)
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--in", dest="folder", type=Path)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path: Path = asked.folder or Path(scratch) / "run"
        if not path.exists():
            make(path, asked.cases)
        if not asked.measure:  # in a process of its own, which has made nothing
            again = ["--in", str(path), "--cases", str(asked.cases), "--measure"]
            return subprocess.call([sys.executable, __file__, *again])
        seconds, gigabytes = measured(path)
    wanted = SECONDS * asked.cases / 10_000
    within = seconds <= wanted and gigabytes <= GIGABYTES
    print(f"{'ok' if within else 'FAIL'}: {seconds:.1f} s, {gigabytes:.2f} GB; {wanted:.1f} s, {GIGABYTES} GB wanted")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
