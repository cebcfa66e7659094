"""The faults: each is called with a run and its controller when its moment has come, and says whether it struck."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from stagebench.cluster.lab.build import processes
from stagebench.cluster.lab.network import switch_link
from stagebench.cluster.slurm import follow as follower
from tests.validation.faults import machine
from tests.validation.faults.run import JOB, LAUNCHED, OVER_HOSTS, ROOT, SERVED, Controller, Run, rank_of
from tests.validation.faults.witness import Processes, works

PATIENCE = 120.0  # seconds for a command
LOOK = 0.05  # seconds
AFTER = {SERVED: 0.5, LAUNCHED: 1.0, OVER_HOSTS: 1.5, JOB: 2.0}  # seconds: less than a process of such a case takes


def always() -> bool:
    """It needs nothing of the machine."""
    return True


def nothing_more(run: Run) -> Iterator[str]:
    """No problem of its own."""
    yield from ()


@dataclass(frozen=True)
class Fault:
    """What happens to a run, to which, and what must be said of it."""

    strike: Callable[[Run, Controller], bool]
    blame: str = ""  # what the reason of each failed record must match, or the command's message where there is none
    case: str = ""  # the key of run.CASES that it concerns; "": any on this machine
    harmless: bool = False  # the run has to complete all the same
    needs: Callable[[], bool] = always  # whether this machine has what it takes
    layered: bool = False  # by layer.c
    after: int = 0  # records that there must be at least
    early: bool = False  # not in the later half of a run: it takes its time
    noticed: Callable[[Run], Iterator[str]] = nothing_more  # problems, asked after the resume

    @property
    def spares(self) -> bool:
        """Whether the controller has to live on."""
        return bool(self.blame) and self.blame not in (ENDED, TWICE)


def nothing(run: Run, controller: Controller) -> bool:
    """None."""
    return False


# --- signals ---------------------------------------------------------------------


def signalled(number: signal.Signals, found: Callable[[Run, int], Processes], times: int = 1) -> Callable[..., bool]:
    """Send a signal to a random one of those that `found` finds; where there is none yet, within AFTER its start."""

    def strike(run: Run, controller: Controller) -> bool:
        if not found(run, controller.pid):
            while controller.poll() is None and not found(run, controller.pid):
                time.sleep(LOOK)
            time.sleep(run.random.uniform(0.0, AFTER[run.cases[-1]]))
        while controller.poll() is None:
            there = found(run, controller.pid)
            if there and sent(number, chosen := run.random.choice(there), run):
                for _ in range(times - 1):
                    time.sleep(0.05)
                    sent(number, chosen, run)
                if number == signal.SIGSTOP and chosen.pid == controller.pid:
                    time.sleep(2.0)
                    chosen.send_signal(signal.SIGCONT)
                return True
            time.sleep(LOOK)
        return False

    return strike


def sent(number: signal.Signals, process: psutil.Process, run: Run) -> bool:
    """Whether there was somebody to get it, whom the run keeps as the victim."""
    try:
        rank = rank_of(process)
        if not works(process):
            return False
        process.send_signal(number)
    except psutil.Error:
        return False
    run.victim = run.victim or (f"rank {rank}" if rank else "mpiexec")
    return True


def the_controller(run: Run, pid: int) -> Processes:
    return [psutil.Process(pid)]


def named(*words: str, guards: bool = False, ranks: bool = False) -> Callable[[Run, int], Processes]:
    """Processes of the run with one of the words in their command line, or their guards; only `ranks` where asked."""

    def found(run: Run, pid: int) -> Processes:
        there: dict[psutil.Process, int] = {}  # with its parent
        for process in run.processes():
            with suppress(psutil.Error):
                tokens = process.cmdline()
                guard = any(token.endswith("guard.py") for token in tokens[:5])
                meant = guard == guards and any(word in token for token in tokens for word in words)
                if meant and (not ranks or (rank_of(process) and "python" in Path(tokens[0]).name)):
                    there[process] = process.ppid()
        pids = {process.pid for process in there}
        return [process for process, parent in there.items() if parent not in pids]  # a fork may be about to be a rank

    return found


# --- the folder --------------------------------------------------------------------


def damage(run: Run, controller: Controller) -> bool:
    """Kill the controller, then damage a record in one of the ways in which files are."""
    alive = controller.poll() is None
    controller.kill()
    controller.wait()
    run.records.look()
    names = sorted(run.records.finished)
    path = run.path / "records" / run.random.choice(names)
    others = [run.path / "records" / name for name in names if name != path.name]
    way = run.random.choice([cut, flipped, *([other] if others else []), misshapen])
    content = way(run, path.read_bytes(), others)
    run.records.damage(path.name, content)
    run.damaged[path.name] = content
    return alive


def cut(run: Run, content: bytes, others: list[Path]) -> bytes:
    return content[: run.random.randrange(len(content) or 1)]


def flipped(run: Run, content: bytes, others: list[Path]) -> bytes:
    if not content:
        return b"x"
    place = run.random.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << run.random.randrange(8)]) + content[place + 1 :]


def other(run: Run, content: bytes, others: list[Path]) -> bytes:
    """Another record of the same run."""
    return run.random.choice(others).read_bytes()


def misshapen(run: Run, content: bytes, others: list[Path]) -> bytes:
    """Valid JSON that is no record, or lacks something, or has something of another type."""
    whole = json.loads(content)
    key = run.random.choice(sorted(whole))
    without = {name: value for name, value in whole.items() if name != key}
    return json.dumps(run.random.choice([[], {}, None, [whole], without, {**whole, key: [[whole[key]]]}])).encode()


def damage_noticed(run: Run) -> Iterator[str]:
    """It was named, kept aside and measured again."""
    text = run.output()
    aside = [path.read_bytes() for path in (run.path / "invalid").glob("*.json")]
    for name, content in run.damaged.items():
        if f"records/{name}: " not in text and f"records/{name} " not in text:
            yield f"the damage of {name} was not named"
        if content not in aside:
            yield f"the damaged {name} was not kept in invalid/"
        if name not in run.records.finished:
            yield f"the damaged {name} was not measured again"


def damage_beside(run: Run, controller: Controller) -> bool:
    """Kill the controller, then damage another file that a resume reads: it goes on all the same, or says which it is.

    Then the file is put back.
    """
    alive = controller.poll() is None
    controller.kill()
    controller.wait()
    below = [path for path in (run.path / "bundles").rglob("*") if path.is_file()]
    named_ = [
        *(run.path / name for name in ("run.json", "cases.json", "plan.toml")),
        *(run.path / "hosts").glob("*.json"),
    ]
    path = run.random.choice([*named_, run.random.choice(below)])
    before = path.read_bytes()
    way = run.random.choice([cut, flipped, misshapen] if path.suffix == ".json" else [cut, flipped])
    path.write_bytes(way(run, before, []))
    name = f"{path.relative_to(run.path)}, damaged by {way.__name__},"
    again = run.start("--retry", output="damaged")
    try:
        code = again.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        again.kill()
        code = again.wait()
        run.problems.append(f"{name} makes the run hang")
    text = run.output("damaged")
    if code != 0 and path.name not in text and not (path in below and "the bundle" in text):
        run.problems.append(f"{name} is not named: {text[-500:]}")
    if "Traceback" in text:
        run.problems.append(f"{name} gives a traceback: {text[-1500:]}")
    if code != 0:
        path.write_bytes(before)
    return alive


def rival(run: Run, controller: Controller) -> bool:
    """A second controller on the same folder is refused, as long as the first has it."""
    while controller.poll() is None and not (run.path / "run.json").exists():  # it has the folder by then
        time.sleep(LOOK)
    second = run.start(output="second")
    alive = controller.poll() is None
    code = second.wait(PATIENCE)
    refused = code == 2 and f"is in use by another session (process {controller.pid} on " in run.output("second")
    if controller.poll() is None and not refused:
        run.problems.append(f"a second controller ended with {code} beside the first: {run.output('second')[-300:]}")
    return alive and refused


# --- the disk, the clock, the memory -----------------------------------------------


def full(run: Run, controller: Controller) -> bool:
    """A few pages are left on the run's disk, for a while or until the command has ended."""
    ballast = machine.fill(run.disk, run.random.choice([0, 0, 0, 1, 2, 5, 20]))
    alive = controller.poll() is None
    with suppress(subprocess.TimeoutExpired):
        controller.wait(run.random.choice([run.random.uniform(1.0, 5.0), PATIENCE]))
    ballast.unlink()
    return alive


def layer(says: Callable[[Run], str], seconds: float) -> Callable[[Run, Controller], bool]:
    """What layer.c is to do for so long, from its first time on."""

    def strike(run: Run, controller: Controller) -> bool:
        bad, mark = run.folder / "bad", run.folder / "bad.struck"
        (run.folder / "bad.new").write_text(says(run))
        (run.folder / "bad.new").rename(bad)
        while not mark.exists() and controller.poll() is None:
            time.sleep(LOOK)
        with suppress(subprocess.TimeoutExpired):
            controller.wait(seconds)
        bad.unlink(missing_ok=True)
        return mark.exists()

    return strike


def refusal(run: Run) -> str:
    """Of one call or of all, of one kind or of any."""
    calls = ("open", "read", "write", "sync", "rename", "mkdir", "unlink", "any")
    return f"{run.random.choice(['once', 'lasting'])} {run.random.choice(calls)}"


def want_of_memory(run: Run, controller: Controller) -> bool:
    """While it has ranks the run gets hardly more than it has, until the kernel has killed somebody for it.

    Where there is none, the controller is all that could be killed.
    """
    assert run.group
    limited, ranks = False, RANKS
    while controller.poll() is None and not run.group.kills():
        if limited != bool(ranks(run, controller.pid)):
            limited = not limited
            run.group.limit(1 << 20 if limited else None)
        time.sleep(LOOK)
    run.group.limit(None)
    return run.group.kills() > 0


# --- hosts ---------------------------------------------------------------------------


def cut_link(run: Run, controller: Controller) -> bool:
    """The second host cannot be reached for a while, or until the run has ended."""
    assert run.laboratory
    far = run.laboratory.layout.hosts[1]
    alive, run.victim = controller.poll() is None, far
    switch_link(far, on=False)
    try:
        with suppress(subprocess.TimeoutExpired):
            controller.wait(run.random.uniform(1.0, 20.0))
    finally:
        switch_link(far, on=True)
    return alive


def dead_host(run: Run, controller: Controller) -> bool:
    """The second host is switched off, as soon as something works there, and comes back without that."""
    assert run.laboratory
    far = run.laboratory.layout.hosts[1]
    while controller.poll() is None and not (there := list(filter(works, processes(far)))):
        time.sleep(LOOK)
    if controller.poll() is not None:
        return False
    switch_link(far, on=False)
    for process in there:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return cut_link(run, controller)


def cancelled_job(run: Run, controller: Controller) -> bool:
    """Somebody cancels the run's job, as soon as there is one."""
    while controller.poll() is None:
        jobs = subprocess.check_output(run.inside(["squeue", "--noheader"]), env=run.environ())
        if jobs.strip():
            subprocess.run(run.inside(["scancel", "--me"]), env=run.environ(), check=True)
            return True
        time.sleep(0.1)
    return False


FOLLOWER = Path(follower.__file__).relative_to(ROOT).as_posix()
RANKS, SERVER = named("job.json", ranks=True), named("server.py")
ENGINE, GUARD = named("bin/mpiexec", "prterun", "orted", "prted"), named("job.json", guards=True)
KILLED, STOPPED = "{victim} was ended by SIGKILL", r"silence limit"
GONE = KILLED + "|{victim} closed its connections without a word"  # mpiexec does not pass on how, from another host
ENDED = r"stopped; \d+ of \d+ records are in|interrupted"
EITHER = KILLED + r"|was ended by SIGKILL \(so was {victim}, and who was first is not known\)"  # Slurm kills the other
UNFOLLOWED = "sbatch was ended by SIGKILL"
LOST = "the host {victim} was (lost|not reached)"
TWICE = ENDED + r"|\A\s*\Z"  # the second one may break into the message
FAULTS = {
    "none": Fault(nothing, harmless=True),
    "SIGKILL of the controller": Fault(signalled(signal.SIGKILL, the_controller)),
    "SIGTERM of the controller": Fault(signalled(signal.SIGTERM, the_controller), ENDED),
    "SIGINT of the controller": Fault(signalled(signal.SIGINT, the_controller), ENDED),
    "SIGINT of the controller, twice": Fault(signalled(signal.SIGINT, the_controller, 2), TWICE),
    "SIGSTOP of the controller for 2 s": Fault(signalled(signal.SIGSTOP, the_controller), harmless=True),
    "SIGKILL of a rank": Fault(signalled(signal.SIGKILL, RANKS), KILLED),
    "SIGTERM of a rank": Fault(signalled(signal.SIGTERM, RANKS), "{victim} was ended by SIGTERM"),
    "SIGSTOP of a rank": Fault(signalled(signal.SIGSTOP, RANKS), STOPPED),
    "SIGKILL of a rank on one of two hosts": Fault(signalled(signal.SIGKILL, RANKS), GONE, OVER_HOSTS),
    "SIGKILL of a rank under Slurm": Fault(signalled(signal.SIGKILL, RANKS), EITHER, JOB),
    "SIGKILL of who follows a Slurm job": Fault(signalled(signal.SIGKILL, named(FOLLOWER)), UNFOLLOWED, JOB),
    "SIGKILL of that one's guard": Fault(signalled(signal.SIGKILL, named(FOLLOWER, guards=True)), UNFOLLOWED, JOB),
    "SIGKILL of a rank's guard": Fault(signalled(signal.SIGKILL, GUARD), KILLED),
    "SIGKILL of a server": Fault(signalled(signal.SIGKILL, SERVER), r"server\.py was ended by SIGKILL", SERVED),
    "SIGTERM of a server": Fault(signalled(signal.SIGTERM, SERVER), r"server\.py was ended by SIGTERM", SERVED),
    "SIGSTOP of a server": Fault(signalled(signal.SIGSTOP, SERVER), case=SERVED, harmless=True),
    "SIGKILL of mpiexec": Fault(signalled(signal.SIGKILL, ENGINE), "mpiexec was ended by SIGKILL", LAUNCHED),
    "SIGTERM of mpiexec": Fault(signalled(signal.SIGTERM, ENGINE), "mpiexec", LAUNCHED),
    "SIGSTOP of mpiexec": Fault(signalled(signal.SIGSTOP, ENGINE), STOPPED, LAUNCHED),
    "want of memory": Fault(want_of_memory, "for want of memory", needs=machine.can_limit),
    "full disk": Fault(full, r"No space left on device|the disk of \S+ is full", needs=machine.can_mount),
    "broken disk": Fault(
        layer(refusal, 1.0), r"Input/output error|Errno 5\b", needs=machine.has_compiler, layered=True
    ),
    "slow disk": Fault(layer(lambda run: "slow any", 2.0), harmless=True, needs=machine.has_compiler, layered=True),
    "clock jump": Fault(
        layer(lambda run: "clock 86400", PATIENCE), harmless=True, needs=machine.has_compiler, layered=True
    ),
    "clock jump back": Fault(
        layer(lambda run: "clock -86400", PATIENCE), harmless=True, needs=machine.has_compiler, layered=True
    ),
    "a damaged record": Fault(damage, after=1, noticed=damage_noticed),
    "another damaged file": Fault(damage_beside, after=1),
    "a second controller": Fault(rival, harmless=True, early=True),
    "cut link": Fault(cut_link, rf"{STOPPED}|{LOST}|rank \d+: .*MPI_ERR", OVER_HOSTS),
    "dead host": Fault(dead_host, LOST, OVER_HOSTS),
    "cancelled job": Fault(cancelled_job, r"Slurm job \d+\b.* CANCELLED", JOB),
}
