"""How far to trust the figures: runs the checks one after another and writes docs/trust.md from what they found.

    python tests/validation/trust.py                  # those without a result of this method; hours on an idle machine
    python tests/validation/trust.py --only observer  # one of them, or several; the others keep their last result
    python tests/validation/trust.py --again          # all, results of this method or not
    python tests/validation/trust.py --page           # nothing but the page

It goes on where it was stopped: what came of a check is kept as soon as it ends.

A check is a script whose last line is the JSON of `figures.told`. It begins when others leave the machine alone, or
after `--wait` seconds all the same. Its result is kept in docs/trust/NAME.json with the machine, the date, the commit
and the method, the command, the loads, and what others used of the processors before it and meanwhile: on a machine
that was not idle the page says so.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import kept, settled
from scipy.stats import quantile_test
from trust_figures import results as results_in
from trust_page import page

from stagebench.suite.results.records import METHOD, load, this_host
from stagebench.suite.worker.messages import HostUse
from stagebench.suite.worker.noise import Meter, disturbance

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TOX = Path(os.environ.get("STAGEBENCH_TOX_DIR", ROOT / ".tox"))
LOOK_S = 5.0  # of what others use right now: the load average tells of the last check for minutes
WAIT_S = 180.0  # for others to leave the machine alone
LONGEST_S = 1800.0  # of a check that is run again until its bounds are settled
LEAST_RUNS = 6  # from which their order gives a 95 % interval

Result = dict[str, Any]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Check:
    """One question of the page, and the script that answers it."""

    name: str
    question: str
    words: tuple[str, ...]  # a file of this folder, and its arguments
    adapter: str = ""  # whose interpreter runs it; "": this one
    root: bool = False  # whether it wants root
    runs: int = 1  # how often it runs: where its processes put their memory is luck, which lasts as long as they do

    def command(self, python: str = "python", tox: str = ".tox") -> list[str]:
        inside = ["tests/adapters/inside.py", tox, self.adapter] if self.adapter else []
        return [python, *inside, str(Path("tests/validation") / self.words[0]), *self.words[1:]]


AS_FAST = "Native step of {} ÷ a hand-written loop"
FRAMEWORKS = {
    "pytorch": "PyTorch",
    "tensorflow": "TensorFlow",
    "mxnet": "MXNet",
    "cntk": "CNTK",
    "jax": "JAX",
    "caffempi": "Caffe-MPI style",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
}
INFERENCE_ONLY = ("onnxruntime", "openvino")
PROFILER = "Difference of the stages from {}"
LAYERS = "Layers one by one ÷ within a stage, {}"
CHECKS = (
    *(
        Check(f"native-{name}", AS_FAST.format(title), (f"{name}_native.py", "--rounds", "6"), name, runs=6)
        for name, title in (
            *(("pytorch", "PyTorch"), ("tensorflow", "TensorFlow"), ("mxnet", "MXNet"), ("jax", "JAX")),
            ("cntk", "CNTK"),
        )
    ),
    Check(
        "native-ddp",
        AS_FAST.format("PyTorch's DDP on two ranks"),
        ("pytorch_native.py", "--ranks", "2", "--rounds", "12"),
        "pytorch",
        runs=12,  # two ranks on two cores scatter by 3 %
    ),
    *(
        Check(f"inference-{name}", f"Inference of {title} ÷ hand-written", ("inference_native.py", "--framework", name))
        for name, title in FRAMEWORKS.items()
    ),
    *(
        Check(f"transformer-{name}", f"Transformers of {title} ÷ hand-written", ("transformer_native.py", name), name)
        for name, title in FRAMEWORKS.items()
        if name not in INFERENCE_ONLY
    ),
    Check("observer", "Cost of the measuring loop", ("observer.py",), "pytorch"),
    Check("stage-clock", "Cost of a border between stages", ("stage_clock.py",), "pytorch"),
    *(
        Check(f"profiler-{name}", PROFILER.format(title), ("stages_vs_profiler.py", name, "alexnet:4"), name)
        for name, title in (("pytorch", "torch.profiler"), ("tensorflow", "TensorFlow's profiler"))
    ),
    Check(
        "exposed",
        "Exposed communication against the time in MPI",
        ("exposed_vs_mpi.py", "mnist_large:2", "alexnet:1", "alexnet:1:layerwise"),
        "caffempi",
    ),
    *(
        Check(f"layers-{name}", LAYERS.format(title), ("layer_sums.py", name, "alexnet:4", "googlenet:4"), name)
        for name, title in (("pytorch", "PyTorch"), ("tensorflow", "TensorFlow"), ("mxnet", "MXNet"), ("cntk", "CNTK"))
    ),
    Check("layers-jax", LAYERS.format("JAX"), ("layer_sums.py", "jax", "mnist_small:512", "alexnet:4"), "jax"),
    Check("conclusions", "Wrong verdicts, and differences that are found", ("conclusions.py",)),
    Check("under-load", "Verdicts of a loaded machine against those of a quiet one", ("under_load.py",)),
    Check("bench", "Time until `tox run -m bench` has an answer", ("bench.py",)),
    Check("summarise", "Cost of a summary", ("summarise.py",)),
    Check("site", "Cost of a site of 10,000 cases", ("big_site.py",)),
    Check(
        "bytes-on-the-wire",
        "Bytes on the wire against the gradients",
        ("bytes_on_the_wire.py",),
        root=True,
    ),
    Check("controller", "Cost of the controller", ("controller.py",)),
    Check("generator", "Lag of the generator of queries, and its latencies next to LoadGen's", ("generator.py",)),
    Check("queue-model", "Latencies by the queue's model against measured ones", ("queue_model.py",)),
)


def run(check: Check, folder: Path, wait_s: float = 0.0) -> Result:
    """Run a check, as soon as others leave the machine alone, and keep what came of it in `folder`."""
    before = left_alone(wait_s)
    host = this_host()
    here = {**host.machine._asdict(), "cores": host.cores}
    result: Result = {
        "name": check.name,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "method": METHOD,
        "command": " ".join(check.command()),
        "runs": check.runs,
        "machine": {name: here[name] for name in ("cpu", "cores", "memory_bytes", "os", "gpus")},
        "load": load(),
    }
    begin = time.monotonic()
    found, meanwhile = beside_others(lambda: answer(check))
    result |= found
    result["seconds"] = round(time.monotonic() - begin)
    result |= {"load_after": load(), "others_before": shares(before), "others_meanwhile": shares(meanwhile)}
    folder.mkdir(exist_ok=True)
    (folder / f"{check.name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def commit() -> str:
    """The checkout's, "-dirty" after it where something but the pages has changed; "" without git."""
    words = ("git", "-C", str(ROOT))
    head, changed = (
        subprocess.run([*words, *each], capture_output=True, text=True, check=False).stdout.strip()
        for each in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", ".", ":!docs"))
    )
    return f"{head}-dirty" if head and changed else head


def left_alone(wait_s: float) -> HostUse | None:
    """What others use of the processors when they leave them to us, or after waiting so long; None without waiting."""
    if not wait_s:
        return None
    until = time.monotonic() + wait_s
    while True:
        _, use = beside_others(lambda: time.sleep(LOOK_S))
        if disturbance(use) < 1.0 or time.monotonic() > until:
            return use
        print(f"waiting: others had {shares(use)} of the processors' time", flush=True)


def beside_others(work: Callable[[], Found]) -> tuple[Found, HostUse | None]:
    """What `work` returns, and what the processors did meanwhile; this process's own is what it started and ended."""
    meter, before = Meter(), own_cpu_s()
    meter.begin()
    found = work()
    use = meter.end()
    return found, use and use._replace(own_cpu_s=own_cpu_s() - before)


def own_cpu_s() -> float:
    uses = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def shares(use: HostUse | None) -> dict[str, float] | None:
    """Of all cores' time; None where the system does not count."""
    if use is None or use.own_cpu_s is None:
        return None
    cores_s = use.seconds * use.cores
    used = {"used": max(use.busy_cpu_s - use.own_cpu_s, 0.0), "stolen": use.steal_cpu_s}
    return {name: round(seconds / cores_s, 4) for name, seconds in used.items()}


def answer(check: Check) -> Result:
    """{"figures": ...} of its last line, or {"failed": why there is none}."""
    if check.root and os.geteuid():
        return {"failed": "it wants root"}
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = check.command(sys.executable, str(TOX))
    runs: list[list[Result]] = []
    wanted, begin = check.runs, time.monotonic()
    while len(runs) < wanted:
        done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=False)
        lines = done.stdout.splitlines() or ["it printed nothing"]
        print("\n".join(lines[:-1]), flush=True)
        try:
            runs.append(json.loads(lines[-1])["figures"])
        except (ValueError, KeyError, TypeError):
            return {"failed": f"exit code {done.returncode}: {lines[-1][:300]}"}
        if len(runs) == wanted:
            figures = [together(several) for several in zip(*runs, strict=True)]
            further = max(LEAST_RUNS, 2 * wanted)
            if any(settled(each) is False for each in figures):
                wanted = further if (time.monotonic() - begin) * further / wanted < LONGEST_S else wanted
    return {"figures": figures, "runs": wanted}


def together(several: Sequence[Result]) -> Result:
    """One figure of several runs.

    Where it has an interval, the median of the runs and the 95 % interval of that median that order alone gives (of six
    runs it is their range); where it has none, the largest.
    """
    values = [each["value"] for each in several]
    if len(several) == 1 or None in values:
        return several[values.index(None) if None in values else 0]
    if "low" not in several[0]:
        return max(several, key=lambda each: each["value"])
    ends = quantile_test(values).confidence_interval(0.95)
    assert not math.isnan(ends.low), f"{len(several)} runs are too few for an interval; {LEAST_RUNS} are not"
    return several[0] | {"value": statistics.median(values), "low": float(ends.low), "high": float(ends.high)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[each.name for each in CHECKS])
    parser.add_argument("--again", action="store_true", help="those, too, that have a result of this method")
    parser.add_argument("--page", action="store_true", help="run nothing")
    parser.add_argument("--wait", type=float, default=WAIT_S, metavar="SECONDS", help="at most, for an idle machine")
    asked = parser.parse_args()
    kept_results = results_in(DOCS / "trust")
    done = {name for name, each in kept_results.items() if each["method"] == METHOD and "failed" not in each}
    names = asked.only or [each.name for each in CHECKS if asked.again or each.name not in done]
    results = []
    for check in CHECKS:
        if check.name in names and not asked.page:
            print(f"--- {check.name}: {check.question}", flush=True)
            results.append(run(check, DOCS / "trust", asked.wait))
            (DOCS / "trust.md").write_text(page(DOCS / "trust", CHECKS))
    (DOCS / "trust.md").write_text(page(DOCS / "trust", CHECKS))
    wrong = [each for each in results if "failed" in each or any(kept(one) is False for one in each["figures"])]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
