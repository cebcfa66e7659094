"""A Slurm job, by Slurm's own programs: submit, ask, cancel. Standard library only."""

import os
import pwd
import re
import subprocess
import time
from dataclasses import dataclass

ANSWER, SUBMISSION = 5.0, 15.0  # seconds for an answer
GENTLE, HARD = 3.0, 5.0  # seconds for a cancelled job to leave; then its processes are killed
CANCELLING = 2 * ANSWER + GENTLE + HARD  # seconds at most, also when Slurm does not answer
STEP = 0.25
QUEUED, GOING, LEAVING = ("PENDING", "CONFIGURING", "REQUEUED"), ("RUNNING", "SUSPENDED"), ("COMPLETING",)
FAILED = "stagebench: "  # opens the script's message about a sidecar that failed
FIELD = re.compile(r"(?<!\w)(JobState|Reason|ExitCode|NodeList|TimeLimit)=(\S*)")


class Refused(Exception):
    """sbatch refused the script; the message has its words."""


@dataclass(frozen=True)
class Facts:
    """Slurm's knowledge of a job."""

    state: str = ""  # "": it did not answer, which passes
    reason: str = ""
    code: str = "1:0"  # exit code, signal
    nodes: str = ""
    limit: str = ""

    @property
    def ended(self) -> bool:
        """True if nothing will change any more."""
        return self.state not in ("", *QUEUED, *GOING, *LEAVING)


@dataclass(frozen=True)
class Job:
    """A job that was submitted."""

    number: str

    def facts(self, seconds: float = ANSWER) -> Facts:
        """Return what `scontrol show job` prints now, within `seconds`."""
        done = _run_or_not(seconds, "scontrol", "show", "job", "--oneliner", self.number)
        if done is None:
            return Facts()
        if "Invalid job id" in done.stderr:
            return Facts("FORGOTTEN", "Slurm keeps jobs that have ended for MinJobAge seconds")
        fields = {name: "" if value == "(null)" else value for name, value in FIELD.findall(done.stdout)}
        if "JobState" not in fields:
            return Facts()
        return Facts(
            fields["JobState"],
            fields.get("Reason", ""),
            fields.get("ExitCode", "1:0"),
            fields.get("NodeList", ""),
            fields.get("TimeLimit", ""),
        )

    def cancel(self) -> None:
        """Cancel it until it has left its nodes, politely, then by force; within CANCELLING: then we are killed."""
        for force, patience in (((), GENTLE), (("--full", "--signal=KILL"), HARD)):
            _run_or_not(ANSWER, "scancel", *force, self.number)
            deadline = time.monotonic() + patience
            while (left := deadline - time.monotonic()) > 0:
                if self.facts(left).ended:
                    return
                time.sleep(STEP)


def submit(script: str) -> Job:
    """Submit a script in the working directory and return its job; Refused, or TimeoutExpired."""
    done = _run(SUBMISSION, "sbatch", "--parsable", script)
    if done.returncode != 0:
        raise Refused(" ".join((done.stderr or done.stdout).split()))
    return Job(done.stdout.strip().split(";")[0])  # ";cluster" may follow


def cancel_named(name: str) -> None:
    """Cancel our job of that name, if there is one."""
    _run_or_not(ANSWER, "scancel", f"--name={name}", f"--user={pwd.getpwuid(os.getuid()).pw_name}")


def environ() -> dict[str, str]:
    """Return our variables for Slurm, without those of a job that we may run in, and without the attempt's mark.

    A job is ended by Slurm; by the mark its ranks on this host would be, and be reported as dead.
    """
    inside = "SLURM_JOB_ID" in os.environ
    return {
        name: value
        for name, value in os.environ.items()
        if name != "STAGEBENCH_ATTEMPT" and not (inside and name.startswith("SLURM_") and name != "SLURM_CONF")
    }


def _run(seconds: float, *tokens: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; TimeoutExpired if it is late."""
    return subprocess.run(
        tokens, capture_output=True, text=True, errors="replace", timeout=seconds, env=environ(), check=False
    )


def _run_or_not(seconds: float, *tokens: str) -> subprocess.CompletedProcess[str] | None:
    """Run a program to its end; None if it is late."""
    try:
        return _run(seconds, *tokens)
    except subprocess.TimeoutExpired:
        return None
