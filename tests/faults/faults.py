"""The faults: each is called with a run and its controller when its moment has come."""

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster.lab.links import switch_link
from cluster.lab.people import processes
from suite.errors import RequestError
from suite.results.lock import held
from tests.faults.run import JOB, LAUNCHED, OVER_HOSTS, SERVED, Processes, Run, works

PATIENCE = 120.0  # seconds for a command
Controller = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Fault:
    """What happens to a run, and to which."""

    strike: Callable[[Run, Controller], None]
    case: str = ""  # the key of run.CASES that it concerns; "": any on this machine
    injected: bool = False  # by the controller itself: controller.py
    harmless: bool = False  # the run has to complete all the same


def nothing(run: Run, controller: Controller) -> None:
    """None, or one that controller.py injects."""


def signalled(number: signal.Signals, found: Callable[[Run, int], Processes], times: int = 1) -> Callable[..., None]:
    """Send a signal to a random one of those that `found` finds, as soon as there is one."""

    def strike(run: Run, controller: Controller) -> None:
        while controller.poll() is None:
            there = found(run, controller.pid)
            if there:
                chosen = run.random.choice(there)
                with suppress(psutil.NoSuchProcess):
                    for _ in range(times):
                        chosen.send_signal(number)
                        time.sleep(0.05)
                if number == signal.SIGSTOP and chosen.pid == controller.pid:
                    time.sleep(2.0)
                    chosen.send_signal(signal.SIGCONT)
                return
            time.sleep(0.02)

    return strike


def the_controller(run: Run, pid: int) -> Processes:
    return [psutil.Process(pid)]


def named(*words: str, guards: bool = False) -> Callable[[Run, int], Processes]:
    """Processes of the run with one of the words in their command line, or their guards."""

    def found(run: Run, pid: int) -> Processes:
        there = []
        for process in run.processes():
            with suppress(psutil.Error):
                tokens = process.cmdline()
                guard = any(token.endswith("guard.py") for token in tokens[:5])
                if guard == guards and any(word in token for token in tokens for word in words):
                    there.append(process)
        return there

    return found


def damage(run: Run, controller: Controller) -> None:
    """Kill the controller, then cut a record short or turn one of its bits."""
    controller.kill()
    controller.wait()
    records = sorted((run.folder / "run" / "records").glob("*.json"))
    if records:
        path = run.random.choice(records)
        content = bytearray(path.read_bytes())
        place = run.random.randrange(len(content))
        if run.random.random() < 0.5:
            content[place] ^= 1 << run.random.randrange(8)
        else:
            del content[place:]
        path.write_bytes(bytes(content))


def rival(run: Run, controller: Controller) -> None:
    """A second controller on the same folder is refused, as long as the first has it."""
    second = run.start()
    alive = controller.poll() is None
    code = second.wait(PATIENCE)
    if alive and code != 2 and in_use(run.folder / "run"):  # the first may live on for a moment and have let go of it
        run.problems.append(f"a second controller ended with {code} beside the first")


def in_use(folder: Path) -> bool:
    try:
        with held(folder):
            return False
    except RequestError:
        return True


# --- of hosts ------------------------------------------------------------------


def cut_link(run: Run, controller: Controller) -> None:
    """The second host cannot be reached for a while, or until the run has ended."""
    assert run.laboratory
    far = run.laboratory.layout.hosts[1]
    switch_link(far, on=False)
    try:
        with suppress(subprocess.TimeoutExpired):
            controller.wait(run.random.uniform(1.0, 20.0))
    finally:
        switch_link(far, on=True)


def dead_host(run: Run, controller: Controller) -> None:
    """The second host is switched off, and comes back without what ran there."""
    assert run.laboratory
    far = run.laboratory.layout.hosts[1]
    switch_link(far, on=False)
    for process in filter(works, processes(far)):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    cut_link(run, controller)


def cancelled_job(run: Run, controller: Controller) -> None:
    """Somebody cancels the run's job, as soon as there is one."""
    while controller.poll() is None:
        jobs = subprocess.check_output(run.inside(["squeue", "--noheader"]), env=run.environ())
        if jobs.strip():
            subprocess.run(run.inside(["scancel", "--me"]), env=run.environ(), check=True)
            return
        time.sleep(0.1)


RANKS, SERVER, ENGINE = named("job.json"), named("server.py"), named("bin/mpiexec", "prterun", "orted", "prted")
FAULTS = {
    "none": Fault(nothing, harmless=True),
    "SIGKILL of the controller": Fault(signalled(signal.SIGKILL, the_controller)),
    "SIGTERM of the controller": Fault(signalled(signal.SIGTERM, the_controller)),
    "SIGINT of the controller": Fault(signalled(signal.SIGINT, the_controller)),
    "SIGINT of the controller, twice": Fault(signalled(signal.SIGINT, the_controller, 2)),
    "SIGSTOP of the controller for 2 s": Fault(signalled(signal.SIGSTOP, the_controller), harmless=True),
    "SIGKILL of a rank": Fault(signalled(signal.SIGKILL, RANKS)),
    "SIGTERM of a rank": Fault(signalled(signal.SIGTERM, RANKS)),
    "SIGSTOP of a rank": Fault(signalled(signal.SIGSTOP, RANKS)),
    "SIGKILL of a rank's guard": Fault(signalled(signal.SIGKILL, named("job.json", guards=True))),
    "SIGKILL of a server": Fault(signalled(signal.SIGKILL, SERVER), SERVED),
    "SIGTERM of a server": Fault(signalled(signal.SIGTERM, SERVER), SERVED),
    "SIGSTOP of a server": Fault(signalled(signal.SIGSTOP, SERVER), SERVED),
    "SIGKILL of mpiexec": Fault(signalled(signal.SIGKILL, ENGINE), LAUNCHED),
    "SIGTERM of mpiexec": Fault(signalled(signal.SIGTERM, ENGINE), LAUNCHED),
    "SIGSTOP of mpiexec": Fault(signalled(signal.SIGSTOP, ENGINE), LAUNCHED),
    "full disk": Fault(nothing, injected=True),
    "broken disk": Fault(nothing, injected=True),
    "slow disk": Fault(nothing, injected=True, harmless=True),
    "clock jump": Fault(nothing, injected=True, harmless=True),
    "clock jump back": Fault(nothing, injected=True, harmless=True),
    "a damaged record": Fault(damage),
    "a second controller": Fault(rival, harmless=True),
    "cut link": Fault(cut_link, OVER_HOSTS),
    "dead host": Fault(dead_host, OVER_HOSTS),
    "cancelled job": Fault(cancelled_job, JOB),
}
