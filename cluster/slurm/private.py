"""A Slurm of one's own: its daemons as plain processes, everything they keep in one folder.

For the laboratory and for tests; no service of the machine is touched, and an ordinary user may start
one. Nodes are hosts of a laboratory (entered by the tokens of `Node.enter`) or, without any, several
daemons on this machine. Works with Debian's Slurm 22.05 (`slurm-wlm`, `munge`).
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from stagebench.suite.errors import StagebenchError, Unavailable
from stagebench.suite.processes.hosts import LOOPBACK
from stagebench.suite.worker.rendezvous import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
READY, LEAVE = 30.0, 10.0  # seconds for all nodes to be idle; for the daemons to end
STEP = 0.1
SOCKET_PATH = 107  # characters of a Unix socket's path, see unix(7)
MEMORY = 2000  # MB that each node declares; Slurm counts no memory here
STEP_NAME = "1000000.4294967291"  # slurmstepd's socket is called NODE_JOB.STEP


def missing() -> str | None:
    """Return what this machine lacks, with the remedy; None if a Slurm can be started."""
    absent = [name for name in PROGRAMS if found(name) is None]
    return f"there is no {', '.join(absent)}; apt-get install slurm-wlm munge" if absent else None


def found(name: str) -> str | None:
    """Return the path of a program; daemons are in folders that are not on a user's PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


@dataclass(frozen=True)
class Node:
    """A node: a host of a laboratory, or one of several on this machine."""

    name: str
    address: str = LOOPBACK
    enter: tuple[str, ...] = ()  # tokens before a command that is to run there


@dataclass(frozen=True)
class Private:
    """A Slurm, known by its folder; the first node's host runs the controller, too."""

    folder: Path  # a short path: sockets in it have at most 108 characters

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which Slurm's programs find it; none if it was never started."""
        return {"SLURM_CONF": str(self._conf)} if self._conf.exists() else {}

    @property
    def _conf(self) -> Path:
        return self.folder / "slurm.conf"

    def start(self, nodes: Sequence[Node], cores: int) -> None:
        """Start it and wait until every node is idle. Each declares `cores`, whatever the machine has.

        Raises Unavailable for what `missing` returns and for a folder whose sockets' paths would be too long,
        StagebenchError with the daemons' last words.
        """
        problem = missing()
        if problem:
            raise Unavailable(problem)
        # slurmd does not report sockets' paths that are too long, and every job is cancelled.
        longest = max(len(f"{self.folder}/{node.name}/{node.name}_{STEP_NAME}") for node in nodes)
        if longest > SOCKET_PATH:
            raise Unavailable(
                f"a Slurm in {self.folder} needs sockets with paths of {longest} characters, the system takes "
                f"{SOCKET_PATH}; take a folder or names that are {longest - SOCKET_PATH} shorter "
                "(STAGEBENCH_LAB_FOLDER says where)"
            )
        self._folders(nodes)
        self._conf.write_text(conf(self.folder, nodes, cores))
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n")
        try:
            keep = self.folder / "munge"
            options = {"key-file": keep / "key", "socket": self.folder / "sock" / "munge.socket"}
            options |= {"pid-file": keep / "pid", "log-file": keep / "log", "seed-file": keep / "seed"}
            self._run((str(found("munged")), "--force", *(f"--{name}={path}" for name, path in options.items())))
            self._run((*nodes[0].enter, str(found("slurmctld")), "-c", "-i"))
            for node in nodes:
                self._run((*node.enter, str(found("slurmd")), "-N", node.name))
            self._wait_for(nodes)
        except StagebenchError:
            self.stop()
            raise

    def stop(self) -> None:
        """End its jobs, its daemons and what they left behind; the folder stays."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            ours = list(self._processes())
            for process in ours:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            if not psutil.wait_procs(ours, LEAVE)[1] and not list(self._processes()):
                return

    def _folders(self, nodes: Sequence[Node]) -> None:
        """Make the folders of the daemons, and munge's key."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        for name in ("state", "sock", *(f"tmp.{node.name}" for node in nodes)):
            (self.folder / name).mkdir(exist_ok=True)
        for node in nodes:
            (self.folder / node.name).mkdir(exist_ok=True)  # its daemon's; a short path, because of its sockets
        keep = self.folder / "munge"
        keep.mkdir(mode=0o700, exist_ok=True)
        if not (keep / "key").exists():
            (keep / "key").touch(mode=0o600)
            (keep / "key").write_bytes(os.urandom(128))

    def _run(self, tokens: Sequence[str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            tokens,
            env={**os.environ, **self.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise StagebenchError(f"{' '.join(tokens)} ended with exit code {done.returncode}: {done.stderr.strip()}")
        return done

    def _wait_for(self, nodes: Sequence[Node]) -> None:
        deadline, ask = time.monotonic() + READY, (*nodes[0].enter, "sinfo", "--noheader", "--Node", "--format=%T")
        states: list[str] = []
        while states != ["idle"] * len(nodes):
            if time.monotonic() > deadline:
                logs = " | ".join(line for log in sorted(self.folder.glob("*.log")) for line in last(log))
                raise StagebenchError(f"the nodes of the Slurm in {self.folder} are {states or 'unknown'}: {logs}")
            time.sleep(STEP)
            with suppress(StagebenchError):  # the controller does not listen yet
                states = self._run(ask).stdout.split()

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                variables = process.environ()
                daemon = process.name() in ("munged", "slurmctld", "slurmd", "slurmstepd")
                ours = variables.get("SLURM_CONF") == str(self._conf)
                if ours and (daemon or "SLURM_JOB_ID" in variables) and process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def last(log: Path) -> list[str]:
    return [f"{log.name}: {line}" for line in log.read_text(errors="replace").splitlines()[-3:]]


def conf(folder: Path, nodes: Sequence[Node], cores: int) -> str:
    """Return the text of slurm.conf. Jobs are followed by process group: control groups belong to the machine."""
    user, first = getpass.getuser(), nodes[0]
    controller = first.name if first.enter else socket.gethostname().split(".")[0]
    # Several nodes with one TmpFS: srun over them hangs. By config_overrides, the cores are those declared here.
    lines = [
        f"""\
ClusterName=stagebench
SlurmctldHost={controller}({first.address})
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/sock/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
KillWait=5
SlurmdTimeout=60"""
    ]
    for node in nodes:
        where = "" if node.enter else f" NodeHostname={controller} Port={free_port()}"
        lines.append(f"NodeName={node.name} NodeAddr={node.address}{where} CPUs={cores} RealMemory={MEMORY}")
    lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"
