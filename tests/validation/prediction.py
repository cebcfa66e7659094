"""How well two ranks predict four: the plan `prediction` on one host and over two rates of link, as JSON.

    python tests/validation/prediction.py OUT            # as root; an hour and a quarter on two cores
    python tests/validation/prediction.py OUT --stages   # networks in stages instead, on one host: half an hour

Four ranks on two cores would crowd each other out. So every process of a framework runs in a control group of its own
that has a quarter of a core from its first pass on, on two ranks as on four: the interpreters are replaced by a few
lines of shell that enter such a group first (cgroup 1 or 2). What else would differ between two ranks and four, or
between two processes of one case, is taken away:

- With half a core each, four ranks kept both cores busy at the same time, where two of them seldom did, and computed
  6 to 10 % more slowly.
- A core that idles comes back slower, most of all a virtual machine's: the same sum took 25 % more of a processor's
  time where one process had a quarter of a core than where four had. So on each core something runs whenever nothing
  else wants to.
- A kernel that looks 250 times a second lets a process overrun its turn by up to 4 ms, and holds it back the longer
  afterwards; whoever waits for that core meanwhile must not lose its share, or four ranks compute 15 % more slowly
  than two: so a share may be saved for one turn (Linux 5.14). What takes less than some 20 ms is held unevenly: the
  plan's steps take longer.
- Memory that is given back and asked for again makes a step take twice as long, or not: processes keep theirs.
- MPI's ranks poll while they wait, which their share pays for on as few ranks as cores, and hardly on more: whoever
  yields its core sleeps.

Over the laboratory each rank is on a host of its own. What is measured is kept in OUT; the same command goes on where
it stopped.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from stagebench.suite.contracts.kernels import KEEP_MEMORY, ONE_ARENA
from stagebench.suite.plugins import adapters
from stagebench.suite.processes.interpreters import find

PLAN = Path(__file__).parents[2] / "suite" / "plans" / "prediction.toml"
ADAPTERS = ("pytorch", "caffempi")
RATES = ("1gbit", "200mbit")
LAB = "predict"
HOSTS = [f"{LAB}{number}" for number in (1, 2, 3, 4)]
CGROUPS = Path("/sys/fs/cgroup")
NAME = "stagebench-share"
TURN, SHARE = 10_000, 0.25  # microseconds, of a core
PATIENT = """
#include <time.h>
int sched_yield(void) { return nanosleep(&(struct timespec){0, 20000}, 0); }
"""

LIMIT = {  # of the group $g; its weight is the largest there is: whatever else runs does not take from its share
    1: 'cd "$g" && echo 262144 >cpu.shares && echo {turn} >cpu.cfs_period_us && echo {quota} >cpu.cfs_quota_us && '
    "echo {quota} >cpu.cfs_burst_us",
    2: 'cd "$g" && echo 10000 >cpu.weight && echo "{quota} {turn}" >cpu.max && echo {quota} >cpu.max.burst',
}
# A group for each process: made, entered, and limited once a pass begins, or starting would take as long as all passes.
# The job's file is the last word.
ENTER = """
g="{root}/{name}-$$"; rmdir "$g" 2>/dev/null  # an earlier process may have had the same number
mkdir "$g" || exit 70
for job; do :; done
(
    until grep -qs '"phase", "name": "native"' "${{job%/*}}"/rank-*.jsonl; do kill -0 $$ || exit; sleep 0.1; done
    {limit} || kill $$
) </dev/null >/dev/null 2>&1 &
echo $$ >"$g/cgroup.procs" || exit 70
"""


# Runs only where its core would idle, and ends with the process that started it.
AWAKE = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def awake() -> Iterator[None]:
    """No core idles."""
    found = [subprocess.Popen([sys.executable, "-c", AWAKE, str(core)]) for core in sorted(os.sched_getaffinity(0))]
    try:
        yield
    finally:
        for one in found:
            one.kill()
            one.wait()


@contextmanager
def groups(out: Path) -> Iterator[dict[str, Path]]:
    """Interpreters with a share of a core, by adapter.

    The control groups are reached by a second mount: a simulated host has a /sys of its own, without them.
    """
    version = 2 if (CGROUPS / "cgroup.controllers").exists() else 1
    root = out / "cgroup"
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", CGROUPS if version == 2 else CGROUPS / "cpu", root], check=True)
    try:
        limit = LIMIT[version].format(turn=TURN, quota=int(TURN * SHARE))
        given = {**KEEP_MEMORY, **ONE_ARENA, "LD_PRELOAD": str(patient(out))}
        exports = "".join(f'export {name}="{value}"\n' for name, value in given.items())
        enter = ENTER.format(root=root, name=NAME, limit=limit) + exports
        yield {name: capped(out, name, enter) for name in ADAPTERS}
    finally:
        for group in root.glob(f"{NAME}-*"):
            group.rmdir()  # its process has ended
        subprocess.run(["umount", root], check=True)


def patient(out: Path) -> Path:
    """A library in which yielding the core is sleeping."""
    library = out / "patient.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=PATIENT, text=True, check=True)
    return library


def capped(out: Path, name: str, enter: str) -> Path:
    """An interpreter like the adapter's, which enters a group first; beside it what stands beside that one."""
    real = find(adapters()[name]).path
    folder = out / "interpreters" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for each in real.parent.iterdir():
        if not each.name.startswith("python"):
            (folder / each.name).symlink_to(each)
    (folder / "python").write_text(f'#!/bin/sh\n{enter}exec "{real}" "$@"\n')
    (folder / "python").chmod(0o755)
    return folder / "python"


def stagebench(*words: str | Path, before: tuple[str, ...] = ()) -> str:
    command = [*before, sys.executable, "-m", "stagebench.suite.cli", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: a case failed, which the figures show
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout


def plan_of(adapter: str, scale: str) -> str:
    """The plan, of which the scale keeps one adapter only."""
    head = f"[scale.{scale}.keep]\n"
    return PLAN.read_text().replace(head, f'{head}adapter = "{adapter}"\n')


def measured(
    out: Path, scale: str, *words: str | Path, before: tuple[str, ...] = (), adapters: tuple[str, ...] = ADAPTERS
) -> Iterator[dict[str, Any]]:
    """Every training on four ranks.

    One adapter after the other: those that may be compared would take turns, and each turn begins with a step in which
    the ranks' shares of a core are out of step.
    """
    for name in adapters:
        plan = out.with_name(f"{name}.toml")
        plan.write_text(plan_of(name, scale))
        stagebench("run", plan, *words, "--scale", scale, "-o", out / name, before=before)
        yield from predicted(out / name)


def predicted(run: Path) -> Iterator[dict[str, Any]]:
    """Every training of the run on four ranks."""
    for answer in json.loads(stagebench("predict", run, "--ranks", "4", "--json")):
        (one,) = answer["predictions"]
        if one["error"] is not None:
            yield {
                "case": answer["label"],
                "predicted": one["rate"],
                "rate_low": one["rate_low"],  # the prediction's 95 % interval
                "rate_high": one["rate_high"],
                "measured": answer["measured"]["4"],
                "error": one["error"],
            }


def measured_inside_predicted(cases: Sequence[dict[str, Any]]) -> int:
    """How many measured speeds lie within the 95 % interval of their prediction."""
    return sum(one["rate_low"] <= one["measured"]["value"] <= one["rate_high"] for one in cases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stages", action="store_true", help="only networks in stages, by PyTorch")
    parser.add_argument("words", nargs="*", help="further options of `stagebench run`, after --")
    asked = parser.parse_args()
    out = asked.out.resolve()
    found = {}
    with awake(), groups(out) as pythons:
        given = [word for name, path in pythons.items() for word in ("--python", f"{name}={path}")]
        words = ("--no-proofs", *given, *asked.words)
        if asked.stages:
            found["stages"] = list(measured(out / "stages", "stages", *words, adapters=("pytorch",)))
        else:
            found["one host"] = list(measured(out / "one-host", "one-host", *words))
        for rate in () if asked.stages else RATES:
            stagebench("lab", "up", "4", "--rate", rate, "--name", LAB)
            try:
                inside = (sys.executable, "-m", "stagebench.suite.cli", "lab", "exec", "--name", LAB, HOSTS[0], "--")
                hosts = ("--hosts", ",".join(HOSTS))
                found[rate] = list(measured(out / rate, "hosts", *words, *hosts, before=inside))
            finally:
                stagebench("lab", "down", "--name", LAB)
    cases = [one for several in found.values() for one in several]
    errors = [abs(one["error"]) for one in cases]
    summary = {"median_error": median(errors), "worst_error": max(errors)} if errors else {}
    summary |= {"cases": len(cases), "measured_inside_predicted": measured_inside_predicted(cases)}
    print(json.dumps({"cores": os.cpu_count(), "core_share": SHARE, **summary, "settings": found}, indent=1))


if __name__ == "__main__":
    main()
