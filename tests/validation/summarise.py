"""What it costs to make rows of a large run: seconds, those of processors among them, and peak memory of `summarise`.

    python tests/validation/summarise.py [--cases 10000] [--in FOLDER]

The run is simulated (tests/reports/made_run.py): five records a case, of one to four ranks, every pass of 40 steps.
It is made once where FOLDER keeps it; 10,000 cases are 2.5 GB.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from figures import figure, told

from stagebench.suite.analysis.summary import summarise
from stagebench.suite.results.records import CaseEntry, Proof, Record
from stagebench.suite.results.run_folder import RunFolder
from tests.reports.made_run import MadeRun, case_of, proof_of, record_of

PROCESSES, SECONDS, GIGABYTES = 5, 20.0, 1.0  # of 10,000 cases


def make(path: Path, cases: int) -> None:
    """Groups of two adapters; a proof for each adapter and number of ranks."""
    every = list(islice(product(range(1, cases + 1), ("pytorch", "caffempi"), (1, 2)), cases))
    entries = [case_of(adapter, "mnist_small", ranks, batch=batch) for batch, adapter, ranks in every]
    folder = MadeRun(path).folder
    folder.write_about(folder.about.but(id="large"))
    folder.write_cases([CaseEntry(id=case.id, case=case) for case in entries])
    for case, (batch, adapter, ranks) in zip(entries, every, strict=True):
        proof = proof_of(case_of(adapter, "mnist_small", ranks, batch=1))
        if batch == 1:
            folder.write_proof(Proof.model_validate_json(json.dumps(proof)))
        for repeat in range(PROCESSES):
            folder.write_record(Record.model_validate_json(json.dumps(record_of(case, repeat, proof))))


def measured(path: Path) -> tuple[float, float, float]:
    """(seconds, seconds of processors, GB) of a process that does nothing else, and of what it starts."""
    begin, before = time.perf_counter(), os.times()[:4]
    rows = summarise(RunFolder.open(path))
    seconds, used = time.perf_counter() - begin, sum(os.times()[:4]) - sum(before)
    assert all(row.rate for row in rows)
    most = [resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return seconds, used, sum(most) / 1e6


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
        seconds, used, gigabytes = measured(path)
    wanted = SECONDS * asked.cases / 10_000
    return told(
        [
            figure(f"{asked.cases:,} cases", seconds, "s", at_most=wanted),
            figure("the same, of processors", used, "s"),
            figure("memory at most", gigabytes, "GB", at_most=GIGABYTES),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
