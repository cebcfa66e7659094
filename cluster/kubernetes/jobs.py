"""The cases of a plan as Kubernetes jobs: a file each, for `kubectl apply -f FOLDER`.

A file has the plan of one case and its job, Kubernetes' own, the MPI operator's or the training operator's, as plain
dictionaries after their schemas: batch/v1; kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go
(at caa3c47); kubeflow/training-operator, pkg/apis/kubeflow.org/v1/pytorch_types.go (v1.9.0); kserve/kserve,
pkg/apis/serving/v1beta1. A case behind KServe's server has an InferenceService, which its job asks at its address.
"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from stagebench.suite.contracts.case import Case
from stagebench.suite.contracts.model_server import INPROCESS
from stagebench.suite.errors import RequestError
from stagebench.suite.files import usable, write_whole
from stagebench.suite.plan import Resolved
from stagebench.suite.plan.text import Block, plan_text
from stagebench.suite.plugins import adapters
from stagebench.suite.processes.hosts import refused
from stagebench.suite.text import shown, without_codes

LONGEST = 45  # characters of a job's name: pods are called after it, and none may pass 63
VERSIONS = {"Job": "batch/v1", "MPIJob": "kubeflow.org/v2beta1", "PyTorchJob": "kubeflow.org/v1"}  # kind: its schema
LISTED = 10  # cases that a refusal lists
RESULTS, PLAN, KEYS = "/results", "/stagebench", "/root/.ssh"
# A pod is ready once a login works: the operators start all pods at once.
WAIT = """\
for host in {hosts}; do
  until ssh -o BatchMode=yes -o ConnectTimeout=5 -- "$host" true; do sleep 2; done
done
"""
READY = """\
until python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' {address}/ready; do sleep 5; done
"""
Yaml = dict[str, Any]
RUN = {"cleanPodPolicy": "Running", "backoffLimit": 0}
NEVER = "Never"  # a run resumes when it is applied again; an automatic restart would hide the failure


@dataclass(frozen=True)
class Settings:
    """The command line's options about the cluster."""

    image: str
    namespace: str
    claim: str  # the PersistentVolumeClaim that all pods share
    secret: str  # keys for the pods of PyTorchJobs; the MPI operator makes its own


@dataclass(frozen=True)
class Inside:
    """A case as it runs in the cluster."""

    name: str
    kind: str  # one of VERSIONS
    case: Case  # its hosts are the pods, its model server KServe's in the cluster
    replicas: int = 0  # of the pods that serve its network; 0: it needs no InferenceService


class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # it carries no types
    """Keeps the order, and text of several lines readable."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(str, _text)
Dumper.ignore_aliases = lambda self, data: True


def write(plan: str, resolved: Iterable[Resolved], folder: Path, settings: Settings) -> tuple[list[Path], list[str]]:
    """Return (the files, a line about every case that was skipped). `plan` is the plan's name."""
    if refused(settings.namespace) or "." in settings.namespace:  # a part of the pods' host names
        raise RequestError(f"--namespace {shown(settings.namespace)} is no namespace: take letters, digits and '-'")
    with usable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    stale = sorted(path.name for path in folder.glob("*.yaml"))
    if stale:
        raise RequestError(
            f"{folder} holds manifests already ({stale[0]}), and kubectl would apply them too; name another with -o"
        )
    jobs, skipped = [], []
    for number, one in enumerate(resolved, 1):
        try:
            if one.outcome is not None:
                raise ValueError(f"{one.outcome}: {one.reason}")
            operator = adapters()[one.case.adapter].kubernetes_job
            jobs.append(inside(plan, number, one.case, settings.namespace, operator))
        except ValueError as error:
            skipped.append(f"{one.case.label} is skipped: {error}")
    if not jobs:
        more = [f"and {len(skipped) - LISTED:,} more"] if len(skipped) > LISTED else []
        lines = ["no case of this plan can be written for Kubernetes:", *skipped[:LISTED], *more]
        raise RequestError("\n".join(lines))
    paths = []
    for job in jobs:
        paths.append(folder / f"{job.name}.yaml")
        write_whole(paths[-1], text_of(job, plan, settings))
    return paths, skipped


def inside(plan: str, number: int, case: Case, namespace: str, operator: str = "") -> Inside:
    """Return the case with its pods for hosts; ValueError if its launcher cannot run in a cluster of pods.

    `operator` is the kind of job that its adapter declares (`kubernetes_job`). The name is an RFC 1035 label: the plan,
    the case's number in it, and the case in words.
    """
    launcher, nodes = case.placement.launcher, case.placement.nodes
    usable_launchers = ("local", "mpiexec", "ssh")
    if launcher not in usable_launchers:
        raise ValueError(f"the launcher {launcher!r} has no place in Kubernetes; use {', '.join(usable_launchers)}")
    words = f"{label(plan)[:20]}-{number:02d}-{label(f'{case.adapter}-{case.strategy}-{case.workload}')}"
    name, hosts = words[:LONGEST].rstrip("-"), []
    if nodes == 1:
        kind = "Job"
    elif operator == "PyTorchJob" and launcher == "ssh":  # hosts as in the operators' host file and services
        kind, hosts = operator, [f"{name}-master-0", *(f"{name}-worker-{node}" for node in range(nodes - 1))]
    else:
        kind, hosts = "MPIJob", [f"{name}-worker-{node}.{name}.{namespace}.svc" for node in range(nodes)]
    case, rule = case.on(placement=replace(case.placement, hosts=tuple(hosts))), case.serving
    if rule.model_server != "kserve":
        return Inside(name, kind, case)
    address = f"http://{name}-predictor.{namespace}.svc.cluster.local/v2/models/{case.workload}"
    there = rule._replace(model_server="open-inference", address=address)
    return Inside(name, kind, case.on(serving=there), rule.workers)


def label(text: str) -> str:
    """Reduce text to small letters, digits and hyphens, a letter first."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return found if found[:1].isalpha() else f"p{found}"


def text_of(job: Inside, plan: str, settings: Settings) -> str:
    """Return the text of one file: a comment for people, the plan with this one case, the job."""
    folder = label(plan)
    run_folder = f"Its run folder: {RESULTS}/{folder}/{job.name} on the volume {settings.claim}."
    head = "".join(f"# {' '.join(without_codes(line).split())}\n" for line in (job.case.label, run_folder))
    about = {"name": job.name, "namespace": settings.namespace, "labels": labels(job.name)}
    one_case = plan_text(job.name, "", f"One case of the plan {plan}.", [Block(job.case, "")])
    version, spec = VERSIONS[job.kind], specified(job, settings, folder)
    documents = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"plan.toml": one_case}},
        {"apiVersion": version, "kind": job.kind, "metadata": about, "spec": spec},
    ]
    if job.replicas:
        documents.insert(1, inference_service(job, about, settings))
    dumped = (yaml.dump(each, Dumper=Dumper, sort_keys=False, width=120, allow_unicode=True) for each in documents)
    return head + "---\n".join(dumped)


def inference_service(job: Inside, about: Yaml, settings: Settings) -> Yaml:
    """Return what serves a case's network: Triton, with the ONNX file that lies in its layout on the volume."""
    network, place = job.case.workload, job.case.placement
    cores = {"cpu": str(place.threads)}  # limited, too: the runtime has a limit of its own, which is one
    cards = {"nvidia.com/gpu": "1"} if place.device == "cuda" else {}
    model = {
        "modelFormat": {"name": "onnx"},
        "protocolVersion": "v2",
        "runtime": "kserve-tritonserver",
        "storageUri": f"pvc://{settings.claim}/networks/{network}",
        "resources": {"requests": cores, "limits": {**cores, **cards}},
    }
    predictor = {"minReplicas": job.replicas, "maxReplicas": job.replicas, "model": model}
    service = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": about}
    return {**service, "spec": {"predictor": predictor}}


def specified(job: Inside, settings: Settings, folder: str) -> Yaml:
    """Specify a case's job; `folder` is that of the plan's runs.

    A Job is on one node and needs no operator. An MPIJob's launcher controls and computes nothing; a worker is a node.
    A PyTorchJob's master controls, and is the first node; rank 0 runs there.
    """
    place, control = job.case.placement, controller(job, settings, folder)
    if job.kind == "Job":
        pod = template(job, settings, control, ranks=True)
        pod["spec"] = {"restartPolicy": NEVER, **pod["spec"]}
        return {"backoffLimit": 0, "template": pod}
    # A node's container waits for logins: the MPI's, or the launcher's ssh.
    node = {**_container(job, settings), "command": ["/usr/sbin/sshd", "-De"]}
    worker = template(job, settings, node, ranks=True)
    if job.kind == "MPIJob":
        first, workers = template(job, settings, control, ranks=False), place.nodes
        about: Yaml = {"slotsPerWorker": place.ranks_per_node, "runPolicy": RUN, "sshAuthMountPath": KEYS}
        return {**about, "mpiReplicaSpecs": {"Launcher": replicas(1, first), "Worker": replicas(workers, worker)}}
    master = template(job, settings, control, ranks=True)
    return {
        "nprocPerNode": str(place.ranks_per_node),
        "runPolicy": RUN,
        "pytorchReplicaSpecs": {"Master": replicas(1, master), "Worker": replicas(place.nodes - 1, worker)},
    }


def replicas(count: int, template: Yaml) -> Yaml:
    return {"replicas": count, "restartPolicy": NEVER, "template": template}


def controller(job: Inside, settings: Settings, folder: str) -> Yaml:
    """Return the container that measures the case, once the others can be reached."""
    others = [host for host in job.case.placement.hosts if host != f"{job.name}-master-0"]
    wait = WAIT.format(hosts=shlex.join(others)) if others else ""
    if job.replicas:
        wait += READY.format(address=job.case.serving.address)
    command = shlex.join(["stagebench", "run", f"{PLAN}/plan.toml", "-o", f"{RESULTS}/{folder}/{job.name}"])
    script = f"{wait}exec {command}\n"
    return {**_container(job, settings), "command": ["sh", "-ec", script]}


def _container(job: Inside, settings: Settings) -> Yaml:
    # The training operator knows its container by this name; the others take any.
    return {
        "name": "pytorch" if job.kind == "PyTorchJob" else "stagebench",
        "image": settings.image,
        "env": [{"name": "STAGEBENCH_CACHE", "value": f"{RESULTS}/cache"}],  # data sets, oracles, proofs: shared
    }


def resources(job: Inside) -> Yaml:
    """Return the resources of one node's ranks, for the threads of training and communication, and for readers.

    CPUs are asked for and not limited: a quota would stop a thread in the middle of a step, and be measured.
    """
    case, place = job.case, job.case.placement
    devices = place.devices_per_node
    readers = case.readers if case.data != "synthetic" and case.input.mode == "disk" else 0
    generator = case.serving.model_server != INPROCESS
    helpers = place.ranks_per_node * (readers + (place.ranks > 1)) + generator
    found: Yaml = {"requests": {"cpu": str(devices * place.threads + helpers)}}
    if place.device == "cuda":
        found["limits"] = {"nvidia.com/gpu": str(devices)}
    return found


def template(job: Inside, settings: Settings, container: Yaml, ranks: bool) -> Yaml:
    """Return a pod with the shared folder; with `ranks`, one that computes, on its own node."""
    mounts = [{"name": "results", "mountPath": RESULTS}]
    volumes: list[Yaml] = [{"name": "results", "persistentVolumeClaim": {"claimName": settings.claim}}]
    if container["command"][0] == "sh":
        mounts.append({"name": "plan", "mountPath": PLAN})
        volumes.append({"name": "plan", "configMap": {"name": job.name}})
    if job.kind == "PyTorchJob":
        mounts.append({"name": "keys", "mountPath": KEYS})
        volumes.append({"name": "keys", "secret": {"secretName": settings.secret, "defaultMode": 0o400}})
    if ranks:  # readers hand batches over in shared memory, of which a container has 64 MB
        mounts.append({"name": "memory", "mountPath": "/dev/shm"})
        volumes.append({"name": "memory", "emptyDir": {"medium": "Memory"}})
        container = {**container, "resources": resources(job)}
    spec: Yaml = {"containers": [{**container, "volumeMounts": mounts}], "volumes": volumes}
    if ranks and job.case.placement.nodes > 1:
        # A job's pods are kept apart: two nodes of a placement are two machines.
        rule = {"labelSelector": {"matchLabels": labels(job.name, "node")}, "topologyKey": "kubernetes.io/hostname"}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
        spec = {"affinity": apart, **spec}
    return {"metadata": {"labels": labels(job.name, "node" if ranks else "controller")}, "spec": spec}


def labels(name: str, part: str = "") -> dict[str, str]:
    """Return the labels by which a job is found, and its pods, which are kept apart by them."""
    found = {"app.kubernetes.io/name": "stagebench", "app.kubernetes.io/instance": name}
    return {**found, "app.kubernetes.io/component": part} if part else found
