"""How far to trust the figures: runs the checks one after another and writes docs/trust.md from what they found.

    python tests/benchmarks/trust.py                  # all; hours, on a machine that does nothing else
    python tests/benchmarks/trust.py --only observer  # one of them, or several; the others keep their last result
    python tests/benchmarks/trust.py --page           # nothing but the page

A check is a script whose last line is the JSON of `figures.told`. Its result is kept in docs/trust/NAME.json with the
machine, the date, the load and the command.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import kept

from suite.results.this_host import load, this_host

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TOX = Path(os.environ.get("STAGEBENCH_TOX_DIR", ROOT / ".tox"))

Result = dict[str, Any]


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
        return [python, *inside, str(Path("tests/benchmarks") / self.words[0]), *self.words[1:]]


AS_FAST = "Is the native step of {} as fast as a loop written by hand?"
PROFILER = "Are stage seconds those of {}?"
LAYERS = "How much longer do layers take one by one than within a stage, in {}?"
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
        ("pytorch_native.py", "--ranks", "2", "--rounds", "6"),
        "pytorch",
        runs=6,
    ),
    Check("observer", "What does the measuring loop cost a native step?", ("observer.py",), "pytorch"),
    Check("stage-clock", "What does a border between stages cost?", ("stage_clock.py",), "pytorch"),
    *(
        Check(f"profiler-{name}", PROFILER.format(title), ("stages_vs_profiler.py", name, "alexnet:4"), name)
        for name, title in (("pytorch", "torch.profiler"), ("tensorflow", "TensorFlow's profiler"))
    ),
    Check(
        "exposed",
        "Is exposed communication the time that ranks spend exchanging?",
        ("exposed_vs_mpi.py", "mnist_large:2", "alexnet:1"),
        "caffempi",
    ),
    *(
        Check(f"layers-{name}", LAYERS.format(title), ("layer_sums.py", name, "alexnet:4", "googlenet:4"), name)
        for name, title in (("pytorch", "PyTorch"), ("tensorflow", "TensorFlow"), ("mxnet", "MXNet"), ("cntk", "CNTK"))
    ),
    Check("layers-jax", LAYERS.format("JAX"), ("layer_sums.py", "jax", "mnist_small:512", "alexnet:4"), "jax"),
    Check("conclusions", "How often is a verdict wrong, and how often is a difference found?", ("conclusions.py",)),
    Check("under-load", "Do verdicts of a loaded machine contradict those of a quiet one?", ("under_load.py",)),
    Check("summarise", "What do 10,000 cases cost to summarise?", ("summarise.py",)),
    Check(
        "bytes-on-the-wire",
        "Do the gradients that a record counts cross the wire, and nothing beside them?",
        ("bytes_on_the_wire.py",),
        root=True,
    ),
    Check("controller", "What does the controller cost?", ("controller.py",)),
)


def run(check: Check, folder: Path) -> Result:
    """Run a check and keep what came of it in `folder`."""
    here = this_host().model_dump()
    result: Result = {
        "name": check.name,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": " ".join(check.command()),
        "runs": check.runs,
        "machine": {name: here[name] for name in ("cpu", "cores", "memory_bytes", "os", "gpus")},
        "load": load(),
    }
    begin = time.monotonic()
    result |= answer(check)
    result["seconds"] = round(time.monotonic() - begin)
    folder.mkdir(exist_ok=True)
    _file(folder, check).write_text(json.dumps(result, indent=1) + "\n")
    return result


def answer(check: Check) -> Result:
    """{"figures": ...} of its last line, or {"failed": why there is none}."""
    if check.root and os.geteuid():
        return {"failed": "it wants root"}
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = check.command(sys.executable, str(TOX))
    runs = []
    for _ in range(check.runs):
        done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=False)
        lines = done.stdout.splitlines() or ["it printed nothing"]
        print("\n".join(lines[:-1]), flush=True)
        try:
            runs.append(json.loads(lines[-1])["figures"])
        except (ValueError, KeyError, TypeError):
            return {"failed": f"exit code {done.returncode}: {lines[-1][:300]}"}
    return {"figures": [together(several) for several in zip(*runs, strict=True)]}


def together(several: Sequence[Result]) -> Result:
    """One figure of several runs.

    Where it has an interval, the median of the runs and their range, which covers what the median would be after many
    runs in 97 % of cases if there are six; where it has none, the largest.
    """
    values = [each["value"] for each in several]
    if len(several) == 1 or None in values:
        return several[values.index(None) if None in values else 0]
    if "low" not in several[0]:
        return max(several, key=lambda each: each["value"])
    return several[0] | {"value": statistics.median(values), "low": min(values), "high": max(values)}


def page(folder: Path, checks: Sequence[Check] = CHECKS) -> str:
    """docs/trust.md from the results in a folder."""
    results = {
        each.name: json.loads(_file(folder, each).read_text()) for each in checks if _file(folder, each).exists()
    }
    figures = [(name, each) for name, result in results.items() for each in result.get("figures", ())]
    bounded = [each for _, each in figures if kept(each) is not None]
    broken = [(name, each) for name, each in figures if kept(each) is False]
    lines = [
        "# How far to trust it",
        "",
        "What stagebench says of itself, checked against something else: a loop written by hand, a simulation, a busy",
        "machine. `tox run -e trust` runs the checks again and writes this page; `tox run -e trust -- --only NAME`",
        "runs one of them. [Validation](validation.md) says how good predictions and comparisons of runs are.",
        "",
        f"{len(results)} of {len(checks)} checks were run; {len(bounded) - len(broken)} of {len(bounded)} bounds "
        "are kept.",
    ]
    if broken:
        told = [f"- {name}: {each['what']}: {_number(each)}, {_bound(each)} wanted" for name, each in broken]
        lines += ["", "Not kept:", "", *told]
    for check in checks:
        lines += ["", f"## {check.question}", "", *_section(check, results.get(check.name))]
    return "\n".join(lines) + "\n"


def _file(folder: Path, check: Check) -> Path:
    return folder / f"{check.name}.json"


def _section(check: Check, result: Result | None) -> list[str]:
    if result is None:
        return [f"Not run yet: `tox run -e trust -- --only {check.name}`."]
    host = result["machine"]
    where = f"{host['cpu'] or 'unknown processor'}, {host['cores']} cores, {host['os'] or 'unknown system'}"
    often = f", {result['runs']} times" if result.get("runs", 1) > 1 else ""
    about = f"{result['date']}, {where}, load {result['load'][0]:g} before it, {result['seconds']} s"
    lines = [f"{about}: `{result['command']}`{often}"]
    if "failed" in result:
        return [*lines, "", f"It failed: {result['failed']}"]
    lines += ["", "| figure | value | 95 % interval | bound | kept |", "|---|---|---|---|---|"]
    for each in result["figures"]:
        interval = f"{_short(each['low'])} … {_short(each['high'])}" if "low" in each else ""
        verdict = {None: "", True: "yes", False: "**no**"}[kept(each)]
        lines.append(f"| {each['what']} | {_number(each)} | {interval} | {_bound(each)} | {verdict} |")
    return lines


def _number(found: Result) -> str:
    if found["value"] is None:
        return found.get("why", "not measured")
    return f"{_short(found['value'])} {found['unit']}".strip()


def _bound(found: Result) -> str:
    ends = [("at least", found.get("at_least")), ("at most", found.get("at_most"))]
    return " and ".join(f"{word} {_short(value)}" for word, value in ends if value is not None)


def _short(value: float) -> str:
    return f"{value:.4g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[each.name for each in CHECKS])
    parser.add_argument("--page", action="store_true", help="run nothing")
    asked = parser.parse_args()
    chosen = [] if asked.page else [each for each in CHECKS if not asked.only or each.name in asked.only]
    results = []
    for check in chosen:
        print(f"--- {check.name}: {check.question}", flush=True)
        results.append(run(check, DOCS / "trust"))
    (DOCS / "trust.md").write_text(page(DOCS / "trust"))
    wrong = [each for each in results if "failed" in each or any(kept(one) is False for one in each["figures"])]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
