"""The fault campaign: real runs, each with one fault at a random moment, and what becomes of them.

    python tests/validation/faults/campaign.py --runs 580 --seed 1 --jobs 2 --page docs/faults.md

A run is two tiny cases, each measured in two processes: one rank, and two ranks with a server beside them or under
mpiexec (where tox has made the environment mpi-openmpi5); or two ranks on two hosts of a laboratory (where one can
be built). After the fault the same command resumes it, with `--retry`. Nothing that had been finished may be lost,
altered or measured again, every row must be whole, no process may stay behind, and what failed must name what struck
it.

Each run is followed by a process of its own, to which the kernel hands whatever the run leaves behind.
With `--keep FILE` each run that has ended is kept there, and a campaign that was stopped goes on after the last one.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from textwrap import shorten

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402 - the checkout stands first

from stagebench.cluster.lab import build  # noqa: E402
from stagebench.cluster.lab.build import missing  # noqa: E402
from stagebench.cluster.lab.network import NETWORK, checked_layout  # noqa: E402
from stagebench.cluster.lab.state import SETTING, State  # noqa: E402
from stagebench.cluster.slurm import private  # noqa: E402
from stagebench.suite.analysis.summary import summarise  # noqa: E402
from stagebench.suite.processes.interpreters import tox_folders  # noqa: E402
from stagebench.suite.results.run_folder import RunFolder  # noqa: E402
from tests.validation.faults import adapter, machine, witness  # noqa: E402
from tests.validation.faults.faults import FAULTS, PATIENCE, Fault  # noqa: E402
from tests.validation.faults.run import JOB, LAUNCHED, ONE, OVER_HOSTS, SERVED, Controller, Run  # noqa: E402

GOES = 10.0  # seconds for processes to be gone after a command
PROCESSES = 2  # of a case: the plan's
ENDS = {0: "completed", 1: "a case failed", 2: "stopped with a message", 130: "interrupted", 143: "interrupted"}
CONTROL = "none"
LONGEST = 80  # characters of a problem on the page


@dataclass(frozen=True)
class Found:
    """What became of a run."""

    number: int
    fault: str
    struck: bool
    outcome: str
    problems: list[str]


# --- one run -----------------------------------------------------------------


def carry_out(run: Run) -> Found:
    """The run, the fault, the resume, the checks."""
    fault, wanted = FAULTS[run.fault], PROCESSES * len(run.cases)
    began = time.monotonic()
    with run.records.followed():
        controller = run.start(**run.variables)
        run.wait_for(controller)
        run.records.look()
        run.struck = fault.strike(run, controller)
        code = ended(run, controller, "the run")
        run.outcome = "killed" if code < 0 else ENDS.get(code, f"exit code {code}")
        no_orphans(run, "the fault")
        run.problems += [f"after the fault {harm}" for harm in run.records.harm()]
        run.problems += list(wrong_end(run, fault, code))
        run.outcome += f", {len(run.records.finished)} of {wanted} records kept" if code != 0 else ""
        code = ended(run, run.start("--retry"), "the resume")
        no_orphans(run, "the resume")
    run.problems += [f"after the resume {harm}" for harm in run.records.harm()]
    if code != 0 or len(run.records.finished) != wanted:
        run.problems.append(f"the resume ended with {code} and {len(run.records.finished)} of {wanted} records")
    run.problems += [*wrong_rows(run), *fault.noticed(run)]
    if "Traceback" in (text := run.output()):
        run.problems.append(f"a traceback: {text[text.index('Traceback') :][-1500:]}")
    if time.monotonic() - began > PATIENCE:
        run.problems.append("it took too long")
    problems = [" ".join(problem.replace(str(run.folder), "FOLDER").split()) for problem in run.problems]
    return Found(run.number, run.fault, run.struck, run.outcome, problems)


def ended(run: Run, controller: Controller, what: str) -> int:
    try:
        return controller.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        controller.kill()
        run.problems.append(f"{what} hung")
        return controller.wait()


def no_orphans(run: Run, after: str) -> None:
    """None within GOES seconds."""
    deadline = time.monotonic() + GOES
    # Twice: one that loses its parent while we look is below nobody.
    while (left := run.processes() or run.processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    run.problems += [f"{told(each)} was left after {after}" for each in left]
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(left, GOES)
    witness.reap()


def told(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        words = " ".join(process.cmdline()) or process.name()
        return f"process {process.pid} ({process.status()}: {words[:200]})"
    return f"process {process.pid}"


def wrong_end(run: Run, fault: Fault, code: int) -> Iterator[str]:
    """A fault that ended what it must not, or was not blamed, or something else was."""
    if code != 0 and (fault.harmless or not run.struck):
        yield f"nothing was to end it, and it ended with {code}: {run.output()[-500:]}"
    elif fault.spares and code < 0:
        yield f"the controller was ended by signal {-code}"
    elif fault.blame and code > 0:
        wanted = re.compile(fault.blame.format(victim=re.escape(run.victim)))
        said = [record.reason for record in run.failed()] or [run.output()]
        yield from (f"{wanted.pattern!r} is not blamed in {each[-700:]!r}" for each in said if not wanted.search(each))


def wrong_rows(run: Run) -> Iterator[str]:
    """Rows that are not whole, or not what their records say."""
    if run.problems:
        return
    folder = RunFolder.open(run.path)
    yield from folder.unusable()
    rows = summarise(folder)
    if len(rows) != len(run.cases):
        yield f"{len(rows)} rows of {len(run.cases)} cases"
    for row in rows:
        if row.outcome != "ok" or len(row.processes) != PROCESSES:
            yield f"row {row.id}: {row.outcome}, {len(row.processes)} processes"
        shown = sorted(row.rates.by_round.values()) if row.rates else []
        written = sorted(map(speed, (run.path / "records").glob(f"{row.id}-r*.json")))
        if len(shown) != len(written) or not all(map(math.isclose, shown, written)):
            yield f"row {row.id} shows {shown} samples/s, and its records have {written}"


def speed(record: Path) -> float:
    """Samples/s of a record's native pass, by its file alone: of all ranks, over the slowest one's wall time."""
    native = [rank["passes"]["native"] for rank in json.loads(record.read_text())["ranks"]]
    return float(sum(each["samples"] for each in native) / max(each["wall_s"] for each in native))


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


def begin() -> None:
    """Called in each process that follows runs."""
    adapter.register()
    witness.adopt()
    signal.signal(signal.SIGINT, lambda *_: None)  # what has begun goes on; those that we start are not deaf to it


def campaign(
    numbers: Iterable[int],
    seed: int,
    jobs: int,
    scratch: Path,
    faults: Sequence[str] = (),
    mpi: bool = True,
    until: float = math.inf,
) -> Iterator[Found]:
    """Every fault in turn, each at a moment of its own; the same ones for the same seed. None starts after `until`."""
    python = [folder / "mpi-openmpi5" / "bin" / "python" for folder in tox_folders()]
    engine = next((each for each in python if mpi and each.exists()), None)
    here = kinds_here(engine)
    faults = [name for name in faults or FAULTS if FAULTS[name].case in ("", *here) and FAULTS[name].needs()]
    one = partial(carried_out, seed, scratch, faults, here, engine, until)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), begin) as pool:
        try:
            for future in as_completed([pool.submit(one, number) for number in numbers]):
                if found := future.result():
                    yield found
        finally:
            pool.shutdown(cancel_futures=True)


def carried_out(
    seed: int, scratch: Path, faults: list[str], here: set[str], engine: Path | None, until: float, number: int
) -> Found | None:
    """The run of this number, from nothing."""
    if time.monotonic() > until:
        return None
    own, name = random.Random(f"{seed}-{number}"), faults[number % len(faults)]
    cases, fault, folder = cases_of(name, here, own), FAULTS[name], scratch / str(number)
    last = PROCESSES * len(cases) // (2 if fault.early else 1)
    after, share = own.randrange(fault.after, last), own.random()
    folder.mkdir()
    with ExitStack() as around:
        laboratory = around.enter_context(hosts_of(number, cases))
        run = Run(number, name, cases, folder, engine, after, share, own, laboratory)
        run.prepare()
        if fault.needs is machine.can_mount:
            around.enter_context(machine.small_disk(run.disk))
        if fault.needs is machine.can_limit:
            run.group = around.enter_context(machine.group(f"{os.getpid()}-{number}"))
        if fault.layered:
            run.variables = machine.layered(folder, run.disk, alone=own.random() < 0.5)
        return carry_out(run)


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


def rows(found: Sequence[Found]) -> list[dict[str, str | int]]:
    """Return a row for each fault: how many runs it struck, how they ended, and how many were wrong."""
    lines = []
    for fault in FAULTS:
        runs = [run for run in found if run.fault == fault and (run.struck or fault == CONTROL)]
        ends = Counter(run.outcome.partition(",")[0] for run in runs)
        words = ", ".join(f"{end} {count}" for end, count in ends.most_common())
        wrong = sum(bool(run.problems) for run in found if run.fault == fault)
        lines.append({"fault": fault, "runs": len(runs), "ended": words, "wrong": wrong})
    return lines


def page(found: list[Found], seed: int) -> str:
    """Return the page: the outcome of all runs, and what went wrong."""
    control, struck = sum(run.fault == CONTROL for run in found), sum(run.struck for run in found)
    problems = [
        f"- {run.fault}, run {run.number}: `{shorten(problem, LONGEST)}`" for run in found for problem in run.problems
    ]
    wrong = sum(bool(run.problems) for run in found)
    return f"""# What faults do to a run

{wrong} of {len(found)} runs did not end as they should. A fault struck {struck} of them at a random moment, and
{control} had none, for control. In {len(found) - control - struck} it came too late.

After the fault the same command resumed the run, with `--retry` for failed cases. A run is counted as wrong if

- a finished record is later lost, altered or measured again, or a row is incomplete;
- a process stays behind;
- the failure does not name its cause: the rank and the signal, the limit, the disk, the host, the job;
- a damaged file is not named, kept aside and measured again;
- a command hangs or shows a traceback, or the resume does not complete.

{"Nothing was wrong." if not problems else chr(10).join(("The wrong runs:", "", *problems))}

`docs/faults.json` holds a table of all faults, which the website shows below. `tox run -e faults` writes this page
(seed {seed}).
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--runs", type=int, default=len(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--faults", default="", help="these alone, with semicolons between them")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no run after so long")
    parser.add_argument("--keep", type=Path, help="a file for what has been found, from which a later call goes on")
    parser.add_argument("--page", type=Path, help="write the result there")
    parser.add_argument("--scratch", type=Path, help="a folder for all that runs leave; else it is removed")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # runs that have begun are finished
    until = time.monotonic() + 60 * asked.minutes
    kept = asked.keep.read_text().splitlines() if asked.keep and asked.keep.exists() else []
    found = [Found(**json.loads(line)) for line in kept]
    with ExitStack() as around:
        scratch = asked.scratch or around.enter_context(tempfile.TemporaryDirectory(prefix="faults-"))
        os.environ[SETTING] = tempfile.mkdtemp(dir=scratch)  # where its laboratories are kept
        numbers = sorted({*range(asked.runs)} - {run.number for run in found})
        faults = [name.strip() for name in asked.faults.split(";") if name.strip()]
        for run in campaign(numbers, asked.seed, asked.jobs, Path(scratch), faults, until=until):
            found.append(run)
            if asked.keep:
                with asked.keep.open("a") as lines:
                    lines.write(json.dumps(asdict(run)) + "\n")
    text = page(sorted(found, key=lambda run: run.number), asked.seed)
    if asked.page:
        asked.page.write_text(text)
        asked.page.with_suffix(".json").write_text(json.dumps(rows(found), indent=1) + "\n")
    sys.stdout.write(text)
    return int(any(run.problems for run in found))


if __name__ == "__main__":
    sys.exit(main())
