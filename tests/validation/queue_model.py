"""How far is the queue's model from the measured latencies, up to 70 % load?

    python tests/validation/queue_model.py
    python tests/validation/queue_model.py --adapter onnxruntime --model-server mosec

Serves mnist_small at rising rates, with batches of one and of eight. The model is given what was measured at the
next rates (`Served.compared`). A rate's load is its share of the largest: in process the speed of `offline`, behind a
server that of its closed loops.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from figures import figure, told

from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.results.run_folder import RunFolder

LOAD = 0.7  # up to which the model is held to its bounds
BOUNDS = {0.5: 10.0, 0.99: 20.0}  # %, of the median and of p99
PLAN = """
name = "queue-model"
title = "The queue's model"

[defaults]
strategy = "inference"
workload = "mnist_small"
passes = ["offline", "server"]
model_server = "{server}"

[sampling]
seconds = {seconds}
processes = 1
quick = true

[[cases]]
adapter = "{adapter}"
batch = 1

[[cases]]
adapter = "{adapter}"
batch = 8
max_delay_ms = 2
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", default="pytorch")
    parser.add_argument("--model-server", default="inprocess")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each case's queries")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plan, run = Path(scratch) / "plan.toml", Path(scratch) / "run"
        plan.write_text(PLAN.format(adapter=asked.adapter, seconds=asked.seconds, server=asked.model_server))
        words = ["run", str(plan), "--no-proofs", "-o", str(run)]
        subprocess.run([sys.executable, "-m", "stagebench.suite.cli", *words], check=False, stdout=subprocess.DEVNULL)
        return told([found for row in summarise(RunFolder.open(run)) for found in figures(row)])


def figures(row: Row) -> Iterator[dict[str, object]]:
    """Yield the largest distance of each quantile at the rates up to LOAD."""
    served = row.served
    for share, most in BOUNDS.items():
        what = f"p{100 * share:g} of batches of up to {row.case.batch}, largest error of the model"
        if served is None or not row.rates:
            yield figure(what, None, at_most=most, why=row.reason)
            continue
        loops = served.model_server.closed_loops if served.model_server else ()
        largest, errors = max((each.per_s for each in loops), default=row.speed), {}
        for at in served.first:
            found = served.compared(at, row.case.batch, row.case.serving).get(share)
            if at.rate <= LOAD * largest and found and found.predicted:
                errors[at.rate] = 100 * abs(found.predicted / found.measured - 1)
        print(what, {f"{rate:.0f}/s": f"{error:.1f} %" for rate, error in errors.items()}, flush=True)
        why = "no punctual rate with so many queries"
        yield figure(what, max(errors.values(), default=None), "%", at_most=most, why=why)


if __name__ == "__main__":
    sys.exit(main())
