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

from cluster.lab.agent import entering, environment
from cluster.lab.people import processes
from cluster.lab.state import State
from suite.results.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
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
SLURM = ("slurmctld", "slurmd", "slurmscriptd")  # its daemons, which belong to a host
Processes = list[psutil.Process]


@dataclass
class Run:
    """One run and what is known of it."""

    number: int
    fault: str
    cases: tuple[str, ...]  # keys of CASES
    folder: Path
    python: Path | None  # the interpreter with an MPI
    after: int  # records that the run has when the fault comes
    moment: float  # and so many seconds later (of one that the controller injects: after the start)
    random: random.Random
    laboratory: State | None = None
    outcome: str = ""
    problems: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        """Write the plan."""
        plan = PLAN.format(quiet="false" if self.laboratory else "true")
        plan += "".join(f"[[cases]]\n{CASES[case]}\n" for case in self.cases)
        (self.folder / "plan.toml").write_text(plan)

    def command(self, fault: str = "none", *more: str) -> list[str]:
        program = [sys.executable, str(ROOT / "tests/faults/controller.py"), fault, f"{self.moment:.3f}"]
        options = ["--python", f"tiny={self.python}"] if self.python else []
        if self.laboratory and JOB not in self.cases:
            options += ["--hosts", ",".join(self.laboratory.layout.hosts)]
        words = ["run", str(self.folder / "plan.toml"), "-o", str(self.folder / "run"), "--no-proofs", *options, *more]
        return self.inside([*program, *words])

    def inside(self, command: list[str]) -> list[str]:
        """The tokens that run a command where the controller runs."""
        return entering(self.laboratory, self.laboratory.layout.hosts[0], command) if self.laboratory else command

    def environ(self) -> dict[str, str]:
        around = environment(self.laboratory) if self.laboratory else os.environ
        return {**around, "PYTHONPATH": str(ROOT), "STAGEBENCH_CACHE": str(self.folder / "cache")}

    def start(self, fault: str = "none", *more: str) -> "subprocess.Popen[bytes]":
        with (self.folder / "output").open("ab") as log:
            return subprocess.Popen(
                self.command(fault, *more), env=self.environ(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait_for(self, controller: "subprocess.Popen[bytes]") -> None:
        """Until the fault's time has come, or the run has ended."""
        records, wanted = self.folder / "run" / "records", self.after
        while controller.poll() is None and not (records.exists() and sum(1 for _ in records.iterdir()) >= wanted):
            time.sleep(0.02)
        with suppress(subprocess.TimeoutExpired):
            controller.wait(self.moment)

    def processes(self) -> Processes:
        """Those that work in the run's folder or in its hosts."""
        hosts = self.laboratory.layout.hosts if self.laboratory else ()
        found = {process.pid: process for host in hosts for process in processes(host)}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.cwd().startswith(str(self.folder)):
                    found[process.pid] = process
        return [process for process in found.values() if works(process)]

    def records(self) -> dict[str, bytes]:
        """What is measured well, by file name."""
        if not (self.folder / "run" / "run.json").exists():
            return {}
        run = RunFolder.open(self.folder / "run")
        names = [f"{record.case_id}-r{record.repeat}.json" for record in run.records() if record.outcome == "ok"]
        return {name: (run.path / "records" / name).read_bytes() for name in names}


def works(process: psutil.Process) -> bool:
    """Whether it is neither dead nor one of Slurm's daemons."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.name() not in SLURM
    except psutil.Error:
        return False
