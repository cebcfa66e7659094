"""The jobs, Kubernetes' own, the MPI operator's and the training operator's, and their pods, as plain dictionaries.

After their schemas: batch/v1; kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go
(at caa3c47); kubeflow/training-operator, pkg/apis/kubeflow.org/v1/pytorch_types.go (v1.9.0).
"""

import shlex
from collections.abc import Callable
from typing import Any

from cluster.kubernetes.inside import Inside, Settings

RESULTS, PLAN, KEYS = "/results", "/stagebench", "/root/.ssh"
# A pod is ready once a login works: the operators start all pods at once.
WAIT = """\
for host in {hosts}; do
  until ssh -o BatchMode=yes -o ConnectTimeout=5 -- "$host" true; do sleep 2; done
done
"""
Yaml = dict[str, Any]
RUN = {"cleanPodPolicy": "Running", "backoffLimit": 0}
NEVER = "Never"  # a run resumes when it is applied again; an automatic restart would hide the failure


def documents(job: Inside, settings: Settings, plan: str, folder: str) -> list[Yaml]:
    """Return all of one case: its plan, and the job that runs it. `plan` is the text of a plan with this one case."""
    version, specified = KINDS[job.kind]
    spec = specified(job, settings, controller(job, settings, folder))
    about = {"name": job.name, "namespace": settings.namespace, "labels": labels(job.name)}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"plan.toml": plan}},
        {"apiVersion": version, "kind": job.kind, "metadata": about, "spec": spec},
    ]


def plain(job: Inside, settings: Settings, controller: Yaml) -> Yaml:
    """Specify a job on one node, which needs no operator."""
    pod = template(job, settings, controller, ranks=True)
    pod["spec"] = {"restartPolicy": NEVER, **pod["spec"]}
    return {"backoffLimit": 0, "template": pod}


def mpi(job: Inside, settings: Settings, controller: Yaml) -> Yaml:
    """Specify an MPIJob: the launcher controls and computes nothing; a worker is a node."""
    launcher = template(job, settings, controller, ranks=False)
    worker = template(job, settings, node(job, settings), ranks=True)
    return {
        "slotsPerWorker": job.case.placement.ranks_per_node,
        "runPolicy": RUN,
        "sshAuthMountPath": KEYS,
        "mpiReplicaSpecs": {"Launcher": replicas(1, launcher), "Worker": replicas(job.case.placement.nodes, worker)},
    }


def pytorch(job: Inside, settings: Settings, controller: Yaml) -> Yaml:
    """Specify a PyTorchJob: the master controls, and is the first node; rank 0 runs there."""
    master = template(job, settings, controller, ranks=True)
    worker, place = template(job, settings, node(job, settings), ranks=True), job.case.placement
    return {
        "nprocPerNode": str(place.ranks_per_node),
        "runPolicy": RUN,
        "pytorchReplicaSpecs": {
            "Master": replicas(1, master),
            "Worker": replicas(place.nodes - 1, worker),
        },
    }


def replicas(count: int, template: Yaml) -> Yaml:
    return {"replicas": count, "restartPolicy": NEVER, "template": template}


# By kind: the version of its schema, and the function that makes its specification.
KINDS: dict[str, tuple[str, Callable[[Inside, Settings, Yaml], Yaml]]] = {
    "Job": ("batch/v1", plain),
    "MPIJob": ("kubeflow.org/v2beta1", mpi),
    "PyTorchJob": ("kubeflow.org/v1", pytorch),
}


def controller(job: Inside, settings: Settings, folder: str) -> Yaml:
    """Return the container that measures the case, once the others can be reached."""
    others = [host for host in job.case.placement.hosts if host != f"{job.name}-master-0"]
    wait = WAIT.format(hosts=shlex.join(others)) if others else ""
    command = shlex.join(["stagebench", "run", f"{PLAN}/plan.toml", "-o", f"{RESULTS}/{folder}/{job.name}"])
    script = f"{wait}exec {command}\n"
    return {**_container(job, settings), "command": ["sh", "-ec", script]}


def node(job: Inside, settings: Settings) -> Yaml:
    """Return the container of a node that waits for logins: the MPI's, or the launcher's ssh."""
    return {**_container(job, settings), "command": ["/usr/sbin/sshd", "-De"]}


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
    helpers = place.ranks_per_node * (readers + (place.ranks > 1))
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
        spec = {"affinity": apart(job.name), **spec}
    return {"metadata": {"labels": labels(job.name, "node" if ranks else "controller")}, "spec": spec}


def labels(name: str, part: str = "") -> dict[str, str]:
    """Return the labels by which a job is found, and its pods, which are kept apart by them."""
    found = {"app.kubernetes.io/name": "stagebench", "app.kubernetes.io/instance": name}
    return {**found, "app.kubernetes.io/component": part} if part else found


def apart(name: str) -> Yaml:
    """Keep a job's pods apart: two nodes of a placement are two machines."""
    rule = {"labelSelector": {"matchLabels": labels(name, "node")}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
