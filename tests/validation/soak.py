"""A long run: does the controller's memory, or its time for a case, grow with the cases that it has measured?

    python tests/validation/soak.py --cases 1000

One run of many cases of a tiny network by the reference adapter. Prints JSON: the controller's own processor time for a
case, its resident memory, and descriptors, in the first and in the last tenth; what it left behind. Exit code 1 where
memory grew by 10 %, a case costs 0.1 s, or something was left.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

PLAN = """\
name = "soak"
[sampling]
quick = true
warmup_steps = 2
warmup_limit = 0.01
steps = 2
seconds = 0.01
processes = 1
[[cases]]
adapter = "reference"
strategy = "single"
workload = "tiny.py"
data = "synthetic"
precision = "float64"
passes = ["native"]
batch = 2
lr = {rates}
"""
NETWORK = """\
from stagebench.workloads.build import Builder

def network():
    b = Builder("tiny", (1, 4, 4), 2)
    b.head(b.dense("fc", b.flatten("flat", "input"), 2))
    return b.graph
"""


class Sample(NamedTuple):
    """The controller after so many cases."""

    cases: int
    cpu_s: float
    resident: int
    descriptors: int


def sampled(controller: "subprocess.Popen[bytes]", records: Path) -> list[Sample]:
    """A sample every 50 ms: fewer might meet only moments at which a rank's files are open."""
    process, found = psutil.Process(controller.pid), []
    while controller.poll() is None:
        time.sleep(0.05)
        try:
            done = len(os.listdir(records)) if records.exists() else 0
            spent = process.cpu_times()
            found.append(Sample(done, spent.user + spent.system, process.memory_info().rss, process.num_fds()))
        except psutil.Error:  # it is leaving
            break
    return found


def grown(samples: list[Sample], cases: int) -> dict[str, Any]:
    """By quantity: in the first tenth (after a few cases) and in the last; memory at the end, the summary's, too."""
    tenth = cases // 10
    first = [each for each in samples if tenth / 5 <= each.cases <= tenth]
    last = [each for each in samples if cases - tenth <= each.cases < cases]  # its summary is not a case's
    return {
        "controller_s_per_case": [
            round((part[-1].cpu_s - part[0].cpu_s) / max(1, part[-1].cases - part[0].cases), 4)
            for part in (first, last)
        ],
        "resident_mb": [round(max(each.resident for each in part) / 1e6, 1) for part in (first, last)],
        "resident_mb_at_the_end": round(max(each.resident for each in samples) / 1e6, 1),
        # The fewest: a rank that is being started has some.
        "descriptors": [min(each.descriptors for each in part) for part in (first, last)],
    }


def flat(found: dict[str, Any]) -> bool:
    """Whether the last tenth needs no more than the first: memory within 10 %, 0.1 s a case, no descriptor more.

    The summary has all rows at once: it may take as much memory again.
    """
    (early, late), spent, (few, many) = found["resident_mb"], found["controller_s_per_case"], found["descriptors"]
    within = late <= 1.1 * early and found["resident_mb_at_the_end"] <= 2 * early
    return bool(within and spent[1] <= 0.1 and many <= few)


def left(folder: Path) -> int:
    """Processes that still work in the folder."""
    count = 0
    for process in psutil.process_iter():
        try:
            count += process.cwd().startswith(str(folder))
        except psutil.Error:
            continue
    return count


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    cases = parser.parse_args().cases
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        folder = Path(place)
        rates = [round(0.001 + 0.0001 * number, 6) for number in range(cases)]
        (folder / "plan.toml").write_text(PLAN.format(rates=rates))
        (folder / "tiny.py").write_text(NETWORK)
        command = [
            sys.executable,
            "-m",
            "stagebench.suite.cli",
            "run",
            str(folder / "plan.toml"),
            "-o",
            str(folder / "run"),
        ]
        began = time.monotonic()
        with (folder / "log").open("w") as log:
            controller = subprocess.Popen([*command, "--no-proofs"], stdout=log, stderr=log)
            samples = sampled(controller, folder / "run" / "records")
        done = sum(1 for _ in (folder / "run" / "records").glob("*.json"))
        found = grown(samples, cases)
        behind, seconds = left(folder), time.monotonic() - began
    print(
        json.dumps(
            {"cases": done, "exit_code": controller.returncode, "seconds": round(seconds), **found, "left": behind}
        )
    )
    return int(not flat(found) or behind > 0 or done != cases or controller.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
