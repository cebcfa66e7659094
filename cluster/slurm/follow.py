"""Run as a script: represent a Slurm job among an attempt's processes.

    python follow.py SCRIPT NAME SECONDS    # submit the batch script, follow the job to its end, end with its exit code
    python follow.py NAME                   # cancel the job of that name: the one that followed it was killed

SIGTERM (ours, or the kernel's when the controller dies) cancels the job, and so does waiting in the
queue for too long. What the job printed goes to the output at its end; what Slurm reports goes to
engine.jsonl (`stagebench.suite.contracts.engine_messages`). Slurm is asked with longer and longer pauses while
nothing changes, and at once when the job marks its beginning or its end on the shared disk.
Standard library only.
"""

import os
import pwd
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

if __name__ == "__main__":  # started without stagebench on its path, whatever variables there are
    sys.modules["stagebench"] = stagebench = ModuleType("stagebench")
    stagebench.__path__ = [str(Path(__file__).resolve().parents[2])]

from stagebench.suite.contracts.engine_messages import Begun, EngineFailed, report

ANSWER, SUBMISSION = 5.0, 15.0  # seconds for an answer
GENTLE, HARD = 3.0, 5.0  # seconds for a cancelled job to leave; then its processes are killed
CANCELLING = 2 * ANSWER + GENTLE + HARD  # seconds at most, also when Slurm does not answer
STEP = 0.25
QUEUED, GOING, LEAVING = ("PENDING", "CONFIGURING", "REQUEUED"), ("RUNNING", "SUSPENDED"), ("COMPLETING",)
AROUND = "STAGEBENCH_WITHIN_JOB"  # the job in which stagebench itself runs, if it does
FAILED = "stagebench: "  # opens the script's message about a sidecar that failed
FIELDS = {"JobState": "state", "Reason": "reason", "ExitCode": "code", "NodeList": "nodes", "TimeLimit": "limit"}
FIELD = re.compile(rf"(?<!\w)({'|'.join(FIELDS)})=(\S*)")

ENDING = {signal.SIGTERM, signal.SIGINT}
LOOK = 0.1  # seconds between looks at the mark
SOON, SELDOM = 0.25, 10.0  # seconds between questions to Slurm
PATIENCE = ANSWER + SUBMISSION + CANCELLING + 2.0  # seconds: more than all may take, one after the other
RANK = "srun: error: "  # opens srun's message about a rank that failed
LAST = 65536  # bytes of the job's output that are passed on
LINGERS = 30.0  # seconds that a job which has ended may take to leave its nodes
OUTCOMES = {"TIMEOUT": "timeout", "DEADLINE": "timeout", "OUT_OF_MEMORY": "oom"}


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
        return Facts(**{name: fields[field] for field, name in FIELDS.items() if field in fields})

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


def _run(seconds: float, *tokens: str) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's programs to its end; TimeoutExpired if it is late.

    It gets our variables without those of a job that we may run in, and without the attempt's mark: a job is ended by
    Slurm; by the mark its ranks on this host would be, and be reported as dead.
    """
    inside = "SLURM_JOB_ID" in os.environ
    environ = {
        name: value
        for name, value in os.environ.items()
        if name != "STAGEBENCH_ATTEMPT" and not (inside and name.startswith("SLURM_") and name != "SLURM_CONF")
    }
    return subprocess.run(
        tokens, capture_output=True, text=True, errors="replace", timeout=seconds, env=environ, check=False
    )


def _run_or_not(seconds: float, *tokens: str) -> subprocess.CompletedProcess[str] | None:
    """Run a program to its end; None if it is late."""
    try:
        return _run(seconds, *tokens)
    except subprocess.TimeoutExpired:
        return None


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
        failed("unavailable", f"sbatch refused {script}: {refused}; STAGEBENCH_SBATCH adds options to the script")
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
        sys.stdout.write(printed())
        sys.stdout.flush()


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
            job.cancel()
            message = (
                f"Slurm job {job.number} was still {known.state} after {seconds:g} s (reason {known.reason}) and was "
                "cancelled; STAGEBENCH_SLURM_WAIT gives it more seconds, STAGEBENCH_SBATCH another partition"
            )
            if around := os.environ.get(AROUND):
                message += (
                    f". stagebench runs in job {around}, whose nodes no other job can have: run it outside of that "
                    "job, or in it by the launcher local or mpiexec"
                )
            failed("timeout", message)
            return 1
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
            try:
                seen = Path("slurm.mark").read_text().strip()  # the job's own: "", "begun" or "ended"
            except OSError:
                seen = ""
            now = time.monotonic()
            if seen != self._mark:
                self._mark, self._delay, self._next = seen, SOON, now
            if now >= self._next:
                self._next, self._delay = now + self._delay, min(self._delay * 1.5, SELDOM)
                return


def ended(job: Job, known: Facts) -> int:
    """Report how the job ended, unless it went well, and return an exit code."""
    if known.state == "COMPLETED" or (known.state in LEAVING and known.code == "0:0"):
        return 0
    # The script's message about a sidecar that failed before any rank did.
    first = next((line for line in printed().splitlines() if line.startswith((FAILED, RANK))), "")
    if first.startswith(FAILED):
        certain, message = True, first.removeprefix(FAILED)
    else:
        certain = known.state not in ("FAILED", "FORGOTTEN")  # a job FAILED because a rank did: that says more
        limit = f" after its {known.limit}" if known.state == "TIMEOUT" else ""
        nodes = f" on {known.nodes}" if known.nodes else ""
        message = (
            f"Slurm job {job.number}{nodes} ended as {known.state}{limit} "
            f"(reason {known.reason}, exit code {known.code})"
        )
    failed(OUTCOMES.get(known.state, "crash"), message, certain)
    return int(known.code.split(":")[0]) or 1


def printed() -> str:
    """Return the end of the job's output; "" if there is none."""
    try:
        with open("slurm.log", "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LAST))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    if len(sys.argv) == 2:
        cancel_named(sys.argv[1])
    else:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
