"""What the controller itself costs: `--help`, a prediction, seconds per process of a case, peak memory.

    python tests/validation/controller.py

A case of the reference adapter is measured through `stagebench run` and, in turn, its
workers are started by hand on the same jobs; the difference is the controller's.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import figure, told

MANY = 17  # processes; the difference of two runs says what each of them costs
PLAN = """
name = "overhead"
[sampling]
quick = true
warmup_steps = 5
warmup_limit = 0.1
steps = 5
seconds = 0.1
processes = {processes}
[[cases]]
adapter = "reference"
strategy = "single"
precision = "float64"
workload = "mnist_small"
batch = 2
"""
# 100 sizes by five schedules.
PREDICT = (
    "predict --workload resnet50 --batch 64 --rate 253.1 --alpha 2e-4 --beta 8e-10 "
    f"--schedule fused,wfbp,buckets,merged,priority --ranks {','.join(str(40 * size) for size in range(1, 101))}"
).split()


# A command of stagebench that tells what itself held at most, without the processes that it started.
ALONE = """
import atexit, resource, sys
from pathlib import Path
from stagebench.suite.cli import main
place = sys.argv.pop(1)
atexit.register(lambda: Path(place).write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)))
sys.exit(main())
"""


def timed(command: list[str], **options: object) -> float:
    """Wall seconds of a command that must succeed."""
    begin = time.perf_counter()
    status = subprocess.call(command, stdout=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    if status:
        raise SystemExit(f"{command} failed with status {status}")
    return time.perf_counter() - begin


def runs(processes: int, folder: Path) -> tuple[float, int, Path]:
    """`stagebench run` with that many processes of one case: (seconds, bytes that it held at most, the run)."""
    plan, output = folder / f"plan{processes}.toml", folder / f"run{processes}-{time.monotonic_ns()}"
    plan.write_text(PLAN.format(processes=processes))
    peak = folder / "peak"
    seconds = timed([sys.executable, "-c", ALONE, str(peak), "run", str(plan), "-o", str(output)])
    return seconds, int(peak.read_text()), output


def by_hand(output: Path) -> float:
    """Seconds of a run's workers, started without the controller: each by its own job, since they differ in passes."""
    jobs = sorted((output / "attempts").glob("*-r[0-9]*/job.json"))
    environ = dict(os.environ, STAGEBENCH_RANK="0", STAGEBENCH_WORLD="1", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    bundle = output / "bundles" / "reference"
    command = [sys.executable, "-m", "stagebench.suite.worker"]
    return sum(timed([*command, str(job.resolve())], cwd=bundle, env=environ) for job in jobs)


def main() -> int:
    """Print each figure with its spread; 1 when a median misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        runs(1, folder)  # makes the oracle and the proof, which the cache keeps
        helps, predictions, extra, peaks = [], [], [], []
        for _ in range(rounds):
            helps.append(timed([sys.executable, "-m", "stagebench.suite.cli", "--help"]))
            predictions.append(timed([sys.executable, "-m", "stagebench.suite.cli", *PREDICT]))
            one, _, single = runs(1, folder)
            several, peak, many = runs(MANY, folder)
            extra.append((several - by_hand(many) - (one - by_hand(single))) / (MANY - 1))
            peaks.append(peak)
    found = []
    for name, values, scale, unit, limit in (
        ("stagebench --help", helps, 1.0, "s", 0.4),
        ("stagebench predict, 500 predictions", predictions, 1.0, "s", 1.0),
        ("controller per process", extra, 1.0, "s", 0.5),
        ("controller peak memory", peaks, 1e6, "MB", 200.0),
    ):
        scaled = [value / scale for value in values]
        median = statistics.median(scaled)
        print(f"{name}: {min(scaled):.3f} to {max(scaled):.3f} {unit}")
        found.append(figure(name, median, unit, at_most=limit))
    return told(found)


if __name__ == "__main__":
    sys.exit(main())
