"""The fault campaign: real runs, each with one fault at a random moment, and what becomes of them.

    python tests/faults/campaign.py --runs 500 --seed 1 --jobs 2 --page docs/faults.md

A run is three tiny cases, measured twice each: one rank, two ranks with a server beside them, two ranks under mpiexec
(where tox has made the environment mpi-openmpi5). After the fault the same command resumes it. Nothing that had been
finished may be lost, altered or measured again, every row must be whole, no process may stay behind.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402 - the checkout stands first

from suite.analysis.summary import summarise  # noqa: E402
from suite.environments.find import tox_folders  # noqa: E402
from suite.results.run_folder import RunFolder  # noqa: E402
from tests.faults import adapter  # noqa: E402

PLAN = """\
name = "faults"
[sampling]
quick = true
warmup_steps = 2
warmup_limit = 0.01
steps = 5
seconds = 0.05
processes = 2
[defaults]
adapter = "tiny"
workload = "mnist_small"
batch = 2
passes = ["native"]
silence_limit = 8.0
time_limit = 60.0
knobs = { quiet = true, pace = 0.01 }
"""
ONE, TWO, MPI = "strategy = 'alone'", "strategy = 'meets'\nranks = 2", "strategy = 'mpi'\nranks = 2"
PATIENCE = 120.0  # seconds for a command
GOES = 10.0  # and for processes to be gone after it
Processes = list[psutil.Process]


@dataclass
class Case:
    """One run of the campaign and what is known of it."""

    fault: str
    folder: Path
    plan: Path
    options: list[str]
    moment: float  # seconds after the start
    random: random.Random
    outcome: str = ""
    problems: list[str] = field(default_factory=list)

    def command(self, fault: str = "none", *more: str) -> list[str]:
        program = [sys.executable, str(ROOT / "tests/faults/controller.py"), fault, f"{self.moment:.3f}"]
        return [*program, "run", str(self.plan), "-o", str(self.folder / "run"), "--no-proofs", *self.options, *more]

    def start(self, fault: str = "none", *more: str) -> "subprocess.Popen[bytes]":
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "STAGEBENCH_CACHE": str(self.folder / "cache")}
        with (self.folder / "output").open("ab") as log:
            return subprocess.Popen(
                self.command(fault, *more), env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def ours(self) -> Processes:
        """Every process that works in the run's folder."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(str(self.folder)):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def records(self) -> dict[str, bytes]:
        """What is measured well, by file name."""
        if not (self.folder / "run" / "run.json").exists():
            return {}
        run = RunFolder.open(self.folder / "run")
        names = [f"{record.case_id}-r{record.repeat}.json" for record in run.records() if record.outcome == "ok"]
        return {name: (run.path / "records" / name).read_bytes() for name in names}


# --- the faults -------------------------------------------------------------


def signalled(number: signal.Signals, found: Callable[[Case, int], Processes], times: int = 1) -> Callable[..., None]:
    """Send a signal to a random one of those that `found` finds, as soon as there is one."""

    def fault(case: Case, controller: "subprocess.Popen[bytes]") -> None:
        while controller.poll() is None:
            there = found(case, controller.pid)
            if there:
                chosen = case.random.choice(there)
                for _ in range(times):
                    chosen.send_signal(number)
                    time.sleep(0.05)
                if number == signal.SIGSTOP and chosen.pid == controller.pid:
                    time.sleep(2.0)
                    chosen.send_signal(signal.SIGCONT)
                return
            time.sleep(0.02)

    return fault


def the_controller(case: Case, pid: int) -> Processes:
    return [psutil.Process(pid)]


def named(*words: str) -> Callable[[Case, int], Processes]:
    """Processes of the run whose command line ends in, or is, one of the words."""

    def found(case: Case, pid: int) -> Processes:
        there = []
        for process in case.ours():
            try:
                tokens = process.cmdline()
            except psutil.Error:
                continue
            if "guard.py" not in " ".join(tokens[:5]) and any(word in token for token in tokens for word in words):
                there.append(process)
        return there

    return found


def damage(case: Case, controller: "subprocess.Popen[bytes]") -> None:
    """Kill the controller, then cut a record short or turn one of its bytes."""
    controller.kill()
    controller.wait()
    records = sorted((case.folder / "run" / "records").glob("*.json"))
    if records:
        path = case.random.choice(records)
        content = bytearray(path.read_bytes())
        place = case.random.randrange(len(content))
        if case.random.random() < 0.5:
            content[place] ^= 1 << case.random.randrange(8)
        else:
            del content[place:]
        path.write_bytes(bytes(content))


def rival(case: Case, controller: "subprocess.Popen[bytes]") -> None:
    """A second controller on the same folder is refused, as long as the first is there."""
    second = case.start()
    alive = controller.poll() is None
    code = second.wait(PATIENCE)
    if alive and controller.poll() is None and code != 2:
        case.problems.append(f"a second controller ended with {code} beside the first")


def nothing(case: Case, controller: "subprocess.Popen[bytes]") -> None:
    """The controller injects it itself."""


RANKS, SERVER, ENGINE = named("job.json"), named("server.py"), named("bin/mpiexec", "prterun", "orted", "prted")
FAULTS: dict[str, Callable[..., None]] = {
    "none": nothing,
    "SIGKILL of the controller": signalled(signal.SIGKILL, the_controller),
    "SIGTERM of the controller": signalled(signal.SIGTERM, the_controller),
    "SIGINT of the controller": signalled(signal.SIGINT, the_controller),
    "SIGINT of the controller, twice": signalled(signal.SIGINT, the_controller, 2),
    "SIGSTOP of the controller for 2 s": signalled(signal.SIGSTOP, the_controller),
    "SIGKILL of a rank": signalled(signal.SIGKILL, RANKS),
    "SIGTERM of a rank": signalled(signal.SIGTERM, RANKS),
    "SIGSTOP of a rank": signalled(signal.SIGSTOP, RANKS),
    "SIGKILL of a server": signalled(signal.SIGKILL, SERVER),
    "SIGTERM of a server": signalled(signal.SIGTERM, SERVER),
    "SIGSTOP of a server": signalled(signal.SIGSTOP, SERVER),
    "SIGKILL of mpiexec": signalled(signal.SIGKILL, ENGINE),
    "SIGTERM of mpiexec": signalled(signal.SIGTERM, ENGINE),
    "SIGSTOP of mpiexec": signalled(signal.SIGSTOP, ENGINE),
    "full disk": nothing,
    "broken disk": nothing,
    "slow disk": nothing,
    "clock jump": nothing,
    "a damaged record": damage,
    "a second controller": rival,
}
INJECTED = ("full disk", "broken disk", "slow disk", "clock jump")
BY_ITSELF = ("none", "SIGSTOP of the controller for 2 s", "slow disk", "clock jump", "a second controller")


# --- one run -----------------------------------------------------------------


def carry_out(case: Case, cases: int) -> Case:
    """The run, the fault, the resume, the checks."""
    began = time.monotonic()
    controller = case.start(case.fault if case.fault in INJECTED else "none")
    time.sleep(case.moment if case.fault not in INJECTED else 0.0)
    FAULTS[case.fault](case, controller)
    code = ended(case, controller, "the run")
    case.outcome = "killed" if code < 0 else {0: "completed", 1: "a case failed", 130: "interrupted"}.get(
        code, "stopped with a message" if code == 2 else f"exit code {code}"
    )  # fmt: skip
    orphans(case, "the fault")
    if case.fault in BY_ITSELF and code != 0:
        case.problems.append(f"it ends nothing, and the run ended with {code}")
    before = case.records()
    code = ended(case, case.start("none", "--retry"), "the resume")
    orphans(case, "the resume")
    after = case.records()
    if code != 0 or len(after) != 2 * cases:
        case.problems.append(f"the resume ended with {code} and {len(after)} of {2 * cases} records")
    case.problems += [f"{name} was lost or altered" for name, content in before.items() if after.get(name) != content]
    case.problems += list(wrong_rows(case, cases))
    if "Traceback" in (case.folder / "output").read_text(errors="replace"):
        case.problems.append("a traceback")
    case.outcome += f", {len(before)} of {2 * cases} records kept" if case.outcome != "completed" else ""
    if time.monotonic() - began > PATIENCE:
        case.problems.append("it took too long")
    return case


def ended(case: Case, controller: "subprocess.Popen[bytes]", what: str) -> int:
    try:
        return controller.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        controller.kill()
        case.problems.append(f"{what} hung")
        return controller.wait()


def orphans(case: Case, after: str) -> None:
    """None within GOES seconds."""
    deadline = time.monotonic() + GOES
    while (left := case.ours()) and time.monotonic() < deadline:
        time.sleep(0.1)
    case.problems += [f"process {each.pid} was left after {after}" for each in left]
    for each in left:
        each.kill()


def wrong_rows(case: Case, cases: int) -> Iterator[str]:
    """Rows that are not whole, or not what their records say."""
    if case.problems:
        return
    run = RunFolder.open(case.folder / "run")
    yield from run.unusable()
    rows = summarise(run)
    if len(rows) != cases:
        yield f"{len(rows)} rows of {cases} cases"
    for row in rows:
        if row.outcome != "ok" or len(row.processes) != 2:
            yield f"row {row.id}: {row.outcome}, {len(row.processes)} processes"


# --- the campaign -------------------------------------------------------------


def campaign(
    runs: int, seed: int, jobs: int, scratch: Path, faults: Sequence[str] = tuple(FAULTS), mpi: bool = True
) -> list[Case]:
    """Every fault in turn, each at a moment of its own; the same ones for the same seed."""
    adapter.register()
    python = [folder / "mpi-openmpi5" / "bin" / "python" for folder in tox_folders()]
    engine = next((each for each in python if mpi and each.exists()), None)
    kinds = [ONE, TWO] + [MPI] * (engine is not None)
    faults = [fault for fault in faults if engine or "mpiexec" not in fault]
    draws = random.Random(seed)

    def made(number: int) -> Case:
        folder = scratch / str(number)
        folder.mkdir()
        (folder / "plan.toml").write_text(PLAN + "".join(f"[[cases]]\n{kind}\n" for kind in kinds))
        options = ["--python", f"tiny={engine}"] if engine else []
        own = random.Random(draws.random())
        moment = own.uniform(0.5, 1.5 + 2 * len(kinds))
        return Case(faults[number % len(faults)], folder, folder / "plan.toml", options, moment, own)

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda case: carry_out(case, len(kinds)), [made(number) for number in range(runs)]))


def page(found: list[Case], seed: int, seconds: float) -> str:
    """Faults by outcomes, as a page."""
    rows = []
    for fault in dict.fromkeys(case.fault for case in found):
        cases = [case for case in found if case.fault == fault]
        ends = Counter(case.outcome.partition(",")[0] for case in cases)
        words = ", ".join(f"{end} {count}" for end, count in ends.most_common())
        rows.append(f"| {fault} | {len(cases)} | {words} | {sum(bool(case.problems) for case in cases)} |")
    problems = [f"- {case.fault}: {problem}" for case in found for problem in case.problems]
    how = f"{len(found)} runs, each with one fault at a random moment (seed {seed}, {seconds / 60:.0f} minutes)"
    return f"""# What faults do to a run

`tox run -e faults` wrote this page: {how}.
After the fault the same command resumed the run. A run counts as wrong if a finished record was lost, altered
or measured again, if a row was not whole, if a process stayed behind, if a command hung or showed a traceback,
or if the resume did not complete.

| fault | runs | how the faulted command ended | wrong |
|---|---|---|---|
{chr(10).join(rows)}

{"Nothing was wrong." if not problems else chr(10).join(problems)}

Cut links, dead hosts and cancelled Slurm jobs want hosts: `tests/cluster/laboratory` has them.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--runs", type=int, default=len(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--page", type=Path, help="write the result there")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        found = campaign(asked.runs, asked.seed, asked.jobs, Path(scratch))
    text = page(found, asked.seed, time.monotonic() - began)
    if asked.page:
        asked.page.write_text(text)
    sys.stdout.write(text)
    return int(any(case.problems for case in found))


if __name__ == "__main__":
    sys.exit(main())
