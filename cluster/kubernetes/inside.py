"""A case in the cluster: its job's name and kind, and the pods that are its hosts."""

import re
from dataclasses import dataclass, replace

from suite.contracts.case import Case

LONGEST = 45  # characters of a job's name: pods are called after it, and none may pass 63
KINDS = ("Job", "MPIJob", "PyTorchJob")


@dataclass(frozen=True)
class Settings:
    """The command line's options about the cluster."""

    image: str
    namespace: str = "default"
    claim: str = "stagebench"  # the PersistentVolumeClaim that all pods share
    secret: str = "stagebench-ssh"  # keys for the pods of PyTorchJobs; the MPI operator makes its own


@dataclass(frozen=True)
class Inside:
    """A case as it runs in the cluster."""

    name: str
    kind: str  # one of KINDS
    case: Case  # its hosts are the pods


def inside(plan: str, number: int, case: Case, namespace: str, operator: str = "") -> Inside:
    """Return the case with its pods for hosts; ValueError says why the cluster cannot run it.

    `operator` is the kind of job that its adapter declares (`kubernetes_job`).
    """
    name, nodes = named(plan, number, case), case.placement.nodes
    kind = kind_of(case, operator)
    hosts = {
        "Job": [],
        # As in the operators' host file and services.
        "MPIJob": [f"{name}-worker-{node}.{name}.{namespace}.svc" for node in range(nodes)],
        "PyTorchJob": [f"{name}-master-0", *(f"{name}-worker-{node}" for node in range(nodes - 1))],
    }
    return Inside(name, kind, case.on(placement=replace(case.placement, hosts=tuple(hosts[kind]))))


def kind_of(case: Case, operator: str) -> str:
    """Return a case's kind of job; ValueError if its launcher cannot run in a cluster of pods."""
    launcher = case.placement.launcher
    known = ("local", "mpiexec", "ssh")
    if launcher not in known:
        raise ValueError(f"the launcher {launcher!r} has no place in Kubernetes; use {', '.join(known)}")
    if case.placement.nodes == 1:
        return "Job"
    return operator if operator in KINDS and launcher == "ssh" else "MPIJob"


def named(plan: str, number: int, case: Case) -> str:
    """Return a job's name, an RFC 1035 label: the plan, the case's number in it, and the case in words."""
    words = f"{label(plan)[:20]}-{number:02d}-{label(f'{case.adapter}-{case.strategy}-{case.workload}')}"
    return words[:LONGEST].rstrip("-")


def label(text: str) -> str:
    """Reduce text to small letters, digits and hyphens, a letter first."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return found if found[:1].isalpha() else f"p{found}"
