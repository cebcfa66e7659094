"""One run of the campaign: a real `stagebench run`, in this machine or in the first host of a laboratory."""

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from stagebench.cluster.lab.state import State, entering, environment
from stagebench.suite.results.records import Record
from stagebench.suite.results.run_folder import RunFolder
from tests.validation.faults.machine import Group
from tests.validation.faults.witness import Processes, Records, descendants

ROOT = Path(__file__).parents[3]
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
knobs = {{ quiet = {quiet}, pace = 0.01 }}
"""
ONE, SERVED, LAUNCHED, OVER_HOSTS, JOB = "one rank", "two ranks and a server", "mpiexec", "two hosts", "Slurm"
CASES = {
    ONE: "strategy = 'alone'",
    SERVED: "strategy = 'meets'\nranks = 2",
    LAUNCHED: "strategy = 'mpi'\nranks = 2",
    OVER_HOSTS: "strategy = 'mpi'\nlauncher = 'mpiexec'\nnodes = 2",
    JOB: "strategy = 'mpi'\nlauncher = 'slurm'\nnodes = 2",
}
EARLY = 2.0  # seconds after the start, or after a case's first process began, within which a fault comes
BEGINS = 0.3  # seconds after the start, before which Python itself answers what comes
SHARE = 0.6  # of what a case's process took before: within it a fault comes to its next one
Controller = subprocess.Popen[bytes]


@dataclass
class Run:
    """One run and what is known of it."""

    number: int
    fault: str
    cases: tuple[str, ...]  # keys of CASES
    folder: Path
    python: Path | None  # the interpreter with an MPI
    after: int  # records that the run has when the fault comes
    share: float  # from 0 to 1: how far it comes into the time that then passes until the next one
    random: random.Random
    laboratory: State | None = None
    group: Group | None = None
    variables: dict[str, str] = field(default_factory=dict)  # of the controller that the fault is for
    struck: bool = False  # else it came too late
    victim: str = ""  # who must be blamed
    damaged: dict[str, bytes] = field(default_factory=dict)  # records, by the campaign itself
    outcome: str = ""
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.disk = self.folder / "disk"  # may be one of its own
        self.path = self.disk / "run"
        self.records = Records(self.path / "records")
        self.before = descendants()  # the daemons of its hosts

    def prepare(self) -> None:
        """Write the plan."""
        self.disk.mkdir()
        plan = PLAN.format(quiet="false" if self.laboratory else "true")
        plan += "".join(f"[[cases]]\n{CASES[case]}\n" for case in self.cases)
        (self.folder / "plan.toml").write_text(plan)

    def command(self, *more: str) -> list[str]:
        program = [sys.executable, str(ROOT / "tests/validation/faults/controller.py")]
        options = ["--python", f"tiny={self.python}"] if self.python else []
        if self.laboratory and JOB not in self.cases:
            options += ["--hosts", ",".join(self.laboratory.layout.hosts)]
        words = ["run", str(self.folder / "plan.toml"), "-o", str(self.path), "--no-proofs", *options, *more]
        return self.inside([*program, *words])

    def inside(self, command: list[str]) -> list[str]:
        """The tokens that run a command where the controller runs."""
        if self.group:
            return self.group.entered_by(command)
        return entering(self.laboratory, self.laboratory.layout.hosts[0], command) if self.laboratory else command

    def environ(self) -> dict[str, str]:
        around = environment(self.laboratory) if self.laboratory else os.environ
        return {**around, "PYTHONPATH": str(ROOT), "STAGEBENCH_CACHE": str(self.folder / "cache")}

    def start(self, *more: str, output: str = "output", **variables: str) -> Controller:
        with (self.folder / output).open("ab") as log:
            return subprocess.Popen(
                self.command(*more),
                env={**self.environ(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def output(self, name: str = "output") -> str:
        return (self.folder / name).read_text(errors="replace")

    def wait_for(self, controller: Controller) -> None:
        """Until the fault's time has come, or the run has ended."""
        while self.after and controller.poll() is None and len(self.times()) <= self.after:
            time.sleep(0.02)
        with suppress(subprocess.TimeoutExpired):
            controller.wait(self.share * self.expected() + (0.0 if self.after else BEGINS))

    def times(self) -> list[float]:
        """When the run began and when its records came; empty where it has not begun."""
        try:
            begun = (self.path / "run.json").stat().st_mtime
            return [begun, *sorted(path.stat().st_mtime for path in (self.path / "records").glob("*.json"))]
        except OSError:
            return []

    def expected(self) -> float:
        """Seconds within which the fault comes: as long as its case took before, or EARLY."""
        times, before = self.times(), self.after - len(self.cases)
        return SHARE * (times[before + 1] - times[before]) if 0 <= before < len(times) - 1 else EARLY

    def processes(self) -> Processes:
        """All that have come of it."""
        return descendants(self.before)

    def failed(self) -> list[Record]:
        """Its records of what did not go well."""
        if not (self.path / "run.json").exists():
            return []
        return [record for record in RunFolder.open(self.path).records() if record.outcome not in ("ok", "cancelled")]


def rank_of(process: psutil.Process) -> str:
    """Which rank it is, by the variables of whoever started it; "" for none."""
    variables = process.environ()
    names = ("STAGEBENCH_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    return next((variables[name] for name in names if name in variables), "")
