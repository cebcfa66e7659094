"""The settings of a private Slurm: slurm.conf, see slurm.conf(5)."""

import getpass
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.processes.hosts import LOOPBACK
from suite.worker.rendezvous import free_port

MEMORY = 2000  # MB that each node declares; nobody counts them


@dataclass(frozen=True)
class Node:
    """A node: by a host of a laboratory, or beside others on this machine."""

    name: str
    address: str = LOOPBACK
    enter: tuple[str, ...] = ()  # tokens before a command that is to run there

    @property
    def alone(self) -> bool:
        return bool(self.enter)


def spool(folder: Path, node: str) -> str:
    """Where a node's daemon keeps what it needs; short, for its sockets' sake."""
    return f"{folder}/{node}"


def conf(folder: Path, nodes: Sequence[Node], cores: int) -> str:
    """The whole file. Jobs are followed by process group: control groups are the machine's own business."""
    user, first = getpass.getuser(), nodes[0]
    controller = first.name if first.alone else socket.gethostname().split(".")[0]
    settings = {
        "ClusterName": "stagebench",
        "SlurmctldHost": f"{controller}({first.address})",
        "SlurmctldPort": free_port(),
        "SlurmdPort": free_port(),
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/sock/munge.socket",
        "CredType": "cred/munge",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": spool(folder, "%n"),
        "TmpFS": f"{folder}/tmp.%n",  # one folder for several nodes, and srun over them hangs
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd.%n.pid",
        "SlurmctldLogFile": f"{folder}/slurmctld.log",
        "SlurmdLogFile": f"{folder}/slurmd.%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU",
        "SlurmdParameters": "config_overrides",  # the cores are those declared here
        "MpiDefault": "none",
        "ReturnToService": 2,
        "SwitchType": "switch/none",
        "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1",
        "KillWait": 5,
        "SlurmdTimeout": 60,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    for node in nodes:
        where = "" if node.alone else f" NodeHostname={controller} Port={free_port()}"
        lines.append(f"NodeName={node.name} NodeAddr={node.address}{where} CPUs={cores} RealMemory={MEMORY}")
    lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"
