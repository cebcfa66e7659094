"""Submits a batch script from its folder, follows the job to its end and ends with the job's exit code.

SIGTERM (ours, or the kernel's when the controller dies) cancels the job, and so does waiting in the
queue for too long. What the job printed goes to the output at its end; what Slurm reports goes to
engine.jsonl (`suite.contracts.engine_messages`). Slurm is asked with longer and longer pauses while
nothing changes, and at once when the job marks its beginning or its end on the shared disk.
Standard library only.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from cluster.slurm.job import (
    ANSWER,
    CANCELLING,
    FAILED,
    GOING,
    LEAVING,
    QUEUED,
    SUBMISSION,
    Facts,
    Job,
    Refused,
    cancel_named,
    submit,
)
from suite.contracts.engine_messages import Begun, EngineFailed, report

ENDING = {signal.SIGTERM, signal.SIGINT}
LOOK = 0.1  # seconds between looks at the mark
SOON, SELDOM = 0.25, 10.0  # seconds between questions to Slurm
PATIENCE = ANSWER + SUBMISSION + CANCELLING + 2.0  # seconds: more than all may take, one after the other
RANK = "srun: error: "  # opens srun's message about a rank that failed
LAST = 65536  # bytes of the job's output that are passed on
LINGERS = 30.0  # seconds that a job which has ended may take to leave its nodes
OUTCOMES = {"TIMEOUT": "timeout", "DEADLINE": "timeout", "OUT_OF_MEMORY": "oom"}


class Asked(Exception):
    """A signal asks the follower to end."""


def main(script: Path, name: str, seconds: float) -> int:
    """Submit the job called `name`, follow it, report; `seconds` are what it may wait in the queue."""
    # Blocked, not handled: never lost, taken in `pause` only, and our own children do not get them either.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    os.chdir(script.parent)
    for stale in ("slurm.log", "slurm.mark"):
        Path(stale).unlink(missing_ok=True)
    cancel_named(name)  # that of an earlier attempt, whose follower and controller were killed: it would write here
    try:
        job = submit(script.name)
    except Refused as refused:
        message = f"sbatch refused {script}: {refused}; STAGEBENCH_SBATCH adds options to the script"
        failed("unavailable", message)
        return 1
    except subprocess.TimeoutExpired as late:  # only its name can tell whether it was submitted
        cancel_named(name)
        failed("crash", f"sbatch did not answer within {late.timeout:g} s")
        return 1
    try:
        return follow(job, seconds)
    except Asked as asked:
        job.cancel()
        print(f"cancelled Slurm job {job.number}", flush=True)  # noqa: T201 - the launcher's log
        return 128 + int(str(asked))
    finally:
        pass_on()


def follow(job: Job, seconds: float) -> int:
    """Return the job's exit code when it has ended; raises Asked."""
    looks, began, begun, left = Looks(), time.monotonic(), False, 0.0
    while True:
        looks.wait()
        known, now = job.facts(), time.monotonic()
        if known.state in GOING and not begun:
            begun = True
            report(Path(), Begun(job.number, known.nodes))
        if known.state in QUEUED and now - began > seconds:
            return give_up(job, known, seconds)
        if known.state in LEAVING:
            left = left or now
            looks.soon()
        if known.ended or (left and now - left > LINGERS):
            return ended(job, known)


def failed(kind: str, message: str, certain: bool = True) -> None:
    """Report a failure of the engine."""
    report(Path(), EngineFailed(kind, message, time.time(), certain))


class Looks:
    """The times at which Slurm is asked again."""

    def __init__(self) -> None:
        self._mark, self._delay, self._next = "", SOON, 0.0

    def soon(self) -> None:
        """Ask soon: the job's state is about to change."""
        self._delay, self._next = SOON, time.monotonic() + SOON

    def wait(self) -> None:
        """Wait until it is time, or the job has changed its mark; raises Asked."""
        while True:
            found = signal.sigtimedwait(ENDING, LOOK)
            if found is not None:
                raise Asked(found.si_signo)
            now, seen = time.monotonic(), marked()
            if seen != self._mark:
                self._mark, self._delay, self._next = seen, SOON, now
            if now >= self._next:
                self._next, self._delay = now + self._delay, min(self._delay * 1.5, SELDOM)
                return


def marked() -> str:
    """Return the mark that the job itself wrote: "", "begun" or "ended"."""
    try:
        return Path("slurm.mark").read_text().strip()
    except OSError:
        return ""


def ended(job: Job, known: Facts) -> int:
    """Report how the job ended, unless it went well, and return an exit code."""
    if known.state == "COMPLETED" or (known.state in LEAVING and known.code == "0:0"):
        return 0
    failed_sidecar = sidecar()
    # A job FAILED because a rank did: that says more.
    certain = bool(failed_sidecar) or known.state not in ("FAILED", "FORGOTTEN")
    message = failed_sidecar or sentence(job.number, known)
    failed(OUTCOMES.get(known.state, "crash"), message, certain)
    return int(known.code.split(":")[0]) or 1


def give_up(job: Job, known: Facts, seconds: float) -> int:
    """Cancel a job that waited too long, and report why it did."""
    job.cancel()
    message = (
        f"Slurm job {job.number} was still {known.state} after {seconds:g} s (reason {known.reason}) and was "
        "cancelled; STAGEBENCH_SLURM_WAIT gives it more seconds, STAGEBENCH_SBATCH another partition"
    )
    failed("timeout", message)
    return 1


def sentence(job: str, known: Facts) -> str:
    """Return how a job ended, in Slurm's words."""
    limit = f" after its {known.limit}" if known.state == "TIMEOUT" else ""
    nodes = f" on {known.nodes}" if known.nodes else ""
    return f"Slurm job {job}{nodes} ended as {known.state}{limit} (reason {known.reason}, exit code {known.code})"


def sidecar() -> str:
    """Return the script's message about a sidecar that failed before any rank did; "" if none did."""
    first = next((line for line in printed().splitlines() if line.startswith((FAILED, RANK))), "")
    return first.removeprefix(FAILED) if first.startswith(FAILED) else ""


def pass_on() -> None:
    sys.stdout.write(printed())
    sys.stdout.flush()


def printed() -> str:
    try:
        with open("slurm.log", "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LAST))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""
