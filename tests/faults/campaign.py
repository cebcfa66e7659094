"""The fault campaign: real runs, each with one fault at a random moment, and what becomes of them.

    python tests/faults/campaign.py --runs 520 --seed 1 --jobs 2 --page docs/faults.md

A run is two tiny cases, each measured in two processes: one rank, and two ranks with a server beside them or under
mpiexec (where tox has made the environment mpi-openmpi5); or two ranks on two hosts of a laboratory (where one can
be built). After the fault the same command resumes it. Nothing that had been finished may be lost, altered or measured
again, every row must be whole, no process may stay behind.

With `--keep FILE` each run that has ended is kept there, and a campaign that was stopped goes on after the last one.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402 - the checkout stands first

from cluster.lab import build  # noqa: E402
from cluster.lab.layout import NETWORK, checked_layout  # noqa: E402
from cluster.lab.rights import missing  # noqa: E402
from cluster.lab.state import SETTING, State  # noqa: E402
from cluster.slurm import private  # noqa: E402
from suite.analysis.summary import summarise  # noqa: E402
from suite.environments.find import tox_folders  # noqa: E402
from suite.results.run_folder import RunFolder  # noqa: E402
from tests.faults import adapter  # noqa: E402
from tests.faults.faults import FAULTS, PATIENCE  # noqa: E402
from tests.faults.run import JOB, LAUNCHED, ONE, OVER_HOSTS, SERVED, Run  # noqa: E402

GOES = 10.0  # seconds for processes to be gone after a command
PROCESSES = 2  # of a case: the plan's
ENDS = {0: "completed", 1: "a case failed", 2: "stopped with a message", 130: "interrupted", 143: "interrupted"}


# --- one run -----------------------------------------------------------------


def carry_out(run: Run) -> Run:
    """The run, the fault, the resume, the checks."""
    fault, wanted = FAULTS[run.fault], PROCESSES * len(run.cases)
    run.prepare()
    began = time.monotonic()
    controller = run.start(run.fault if fault.injected else "none")
    if not fault.injected:
        run.wait_for(controller)
        fault.strike(run, controller)
    code = ended(run, controller, "the run")
    run.outcome = "killed" if code < 0 else ENDS.get(code, f"exit code {code}")
    no_orphans(run, "the fault")
    if fault.harmless and code != 0:
        run.problems.append(f"it ends nothing, and the run ended with {code}")
    before = run.records()
    code = ended(run, run.start("none", "--retry"), "the resume")
    no_orphans(run, "the resume")
    after = run.records()
    if code != 0 or len(after) != wanted:
        run.problems.append(f"the resume ended with {code} and {len(after)} of {wanted} records")
    run.problems += [f"{name} was lost or altered" for name, content in before.items() if after.get(name) != content]
    run.problems += list(wrong_rows(run))
    if "Traceback" in (text := (run.folder / "output").read_text(errors="replace")):
        run.problems.append(f"a traceback: {text[text.index('Traceback') :][-1500:]}")
    run.outcome += f", {len(before)} of {wanted} records kept" if run.outcome != "completed" else ""
    if time.monotonic() - began > PATIENCE:
        run.problems.append("it took too long")
    return run


def ended(run: Run, controller: "subprocess.Popen[bytes]", what: str) -> int:
    try:
        return controller.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        controller.kill()
        run.problems.append(f"{what} hung")
        return controller.wait()


def no_orphans(run: Run, after: str) -> None:
    """None within GOES seconds."""
    deadline = time.monotonic() + GOES
    while (left := run.processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    run.problems += [f"{told(each)} was left after {after}" for each in left]
    for each in left:
        each.kill()
    psutil.wait_procs(left, GOES)


def told(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        words = " ".join(process.cmdline()) or process.name()
        return f"process {process.pid} ({process.status()}: {words[:200]})"
    return f"process {process.pid}"


def wrong_rows(run: Run) -> Iterator[str]:
    """Rows that are not whole, or not what their records say."""
    if run.problems:
        return
    folder = RunFolder.open(run.folder / "run")
    yield from folder.unusable()
    rows = summarise(folder)
    if len(rows) != len(run.cases):
        yield f"{len(rows)} rows of {len(run.cases)} cases"
    for row in rows:
        if row.outcome != "ok" or len(row.processes) != PROCESSES:
            yield f"row {row.id}: {row.outcome}, {len(row.processes)} processes"


# --- the campaign -------------------------------------------------------------


def kinds_here(engine: Path | None) -> set[str]:
    """The keys of run.CASES that this machine can run."""
    hosts = engine is not None and missing() is None
    job = hosts and private.missing() is None
    return {ONE, SERVED, *([LAUNCHED] if engine else []), *([OVER_HOSTS] if hosts else []), *([JOB] if job else [])}


def cases_of(fault: str, here: set[str], own: random.Random) -> tuple[str, ...]:
    """What a run with this fault consists of."""
    case = FAULTS[fault].case or own.choice([each for each in (SERVED, LAUNCHED) if each in here])
    return (case,) if case in (OVER_HOSTS, JOB) else (ONE, case)


def campaign(
    numbers: Iterable[int],
    seed: int,
    jobs: int,
    scratch: Path,
    faults: Sequence[str] = (),
    mpi: bool = True,
    until: float = math.inf,
) -> Iterator[Run]:
    """Every fault in turn, each at a moment of its own; the same ones for the same seed. None starts after `until`."""
    adapter.register()
    python = [folder / "mpi-openmpi5" / "bin" / "python" for folder in tox_folders()]
    engine = next((each for each in python if mpi and each.exists()), None)
    here = kinds_here(engine)
    faults = [fault for fault in faults or FAULTS if FAULTS[fault].case in ("", *here)]

    def carried_out(number: int) -> Run | None:
        if time.monotonic() > until:
            return None
        folder = scratch / str(number)
        folder.mkdir()
        own, fault = random.Random(f"{seed}-{number}"), faults[number % len(faults)]
        cases = cases_of(fault, here, own)
        with hosts_of(number, cases) as laboratory:
            after, moment = own.randrange(PROCESSES * len(cases)), own.uniform(0.0, 3.0)
            moment += after if FAULTS[fault].injected else 0.0
            return carry_out(Run(number, fault, cases, folder, engine, after, moment, own, laboratory))

    with ThreadPoolExecutor(jobs) as pool:
        yield from filter(None, pool.map(carried_out, numbers))


@contextmanager
def hosts_of(number: int, cases: Sequence[str]) -> Iterator[State | None]:
    """Two hosts of the run's own, where its cases want them."""
    if not {OVER_HOSTS, JOB} & set(cases):
        yield None
        return
    state = build.up(checked_layout(f"f{os.getpid()}-{number}h", 2, NETWORK), slurm=2 * (JOB in cases))
    try:
        yield state
    finally:
        build.down(state)


def page(found: list[dict[str, Any]], seed: int) -> str:
    """Faults by outcomes, as a page."""
    rows = []
    for fault in FAULTS:
        runs = [run for run in found if run["fault"] == fault]
        ends = Counter(run["outcome"].partition(",")[0] for run in runs)
        words = ", ".join(f"{end} {count}" for end, count in ends.most_common())
        rows.append(f"| {fault} | {len(runs)} | {words} | {sum(bool(run['problems']) for run in runs)} |")
    faulty = sum(run["fault"] != "none" for run in found)
    problems = [f"- {run['fault']}: {problem}" for run in found for problem in run["problems"]]
    return f"""# What faults do to a run

`tox run -e faults` writes this page: {len(found)} runs, {faulty} of them with a fault at a random moment (seed {seed}).
After the fault the same command resumed the run. A run counts as wrong if a finished record was lost, altered
or measured again, if a row was not whole, if a process stayed behind, if a command hung or showed a traceback,
or if the resume did not complete.

| fault | runs | how the faulted command ended | wrong |
|---|---|---|---|
{chr(10).join(rows)}

{"Nothing was wrong." if not problems else chr(10).join(problems)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--runs", type=int, default=len(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--faults", default="", help="these alone, with commas between them")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no run after so long")
    parser.add_argument("--keep", type=Path, help="a file for what has been found, from which a later call goes on")
    parser.add_argument("--page", type=Path, help="write the result there")
    asked = parser.parse_args()
    until = time.monotonic() + 60 * asked.minutes
    kept = asked.keep.read_text().splitlines() if asked.keep and asked.keep.exists() else []
    found = [json.loads(line) for line in kept]
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        os.environ[SETTING] = tempfile.mkdtemp(dir=scratch)  # where its laboratories are kept
        numbers = sorted({*range(asked.runs)} - {run["number"] for run in found})
        faults = list(filter(None, asked.faults.split(",")))
        for run in campaign(numbers, asked.seed, asked.jobs, Path(scratch), faults, until=until):
            found.append({"number": run.number, "fault": run.fault, "outcome": run.outcome, "problems": run.problems})
            if asked.keep:
                with asked.keep.open("a") as lines:
                    lines.write(json.dumps(found[-1]) + "\n")
    text = page(found, asked.seed)
    if asked.page:
        asked.page.write_text(text)
    sys.stdout.write(text)
    return int(any(run["problems"] for run in found))


if __name__ == "__main__":
    sys.exit(main())
