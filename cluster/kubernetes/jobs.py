"""The jobs: Kubernetes' own, the MPI operator's, the training operator's.

After their schemas: batch/v1; kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go
(at caa3c47); kubeflow/training-operator, pkg/apis/kubeflow.org/v1/pytorch_types.go (v1.9.0).
"""

from collections.abc import Callable

from cluster.kubernetes import pods
from cluster.kubernetes.inside import Inside, Settings
from cluster.kubernetes.pods import Yaml

RUN = {"cleanPodPolicy": "Running", "backoffLimit": 0}
NEVER = "Never"  # a run resumes when it is applied again; by itself it would hide what failed


def documents(job: Inside, settings: Settings, plan: str, folder: str) -> list[Yaml]:
    """All of one case: its plan, and the job that runs it. `plan` is the text of a plan with this one case."""
    version, specified = KINDS[job.kind]
    spec = specified(job, settings, pods.controller(job, settings, folder))
    about = {"name": job.name, "namespace": settings.namespace, "labels": pods.labels(job.name)}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"plan.toml": plan}},
        {"apiVersion": version, "kind": job.kind, "metadata": about, "spec": spec},
    ]


def plain(job: Inside, settings: Settings, controller: Yaml) -> Yaml:
    """One node needs no operator."""
    pod = pods.template(job, settings, controller, ranks=True)
    pod["spec"] = {"restartPolicy": NEVER, **pod["spec"]}
    return {"backoffLimit": 0, "template": pod}


def mpi(job: Inside, settings: Settings, controller: Yaml) -> Yaml:
    """The launcher controls and computes nothing; a worker is a node."""
    launcher = pods.template(job, settings, controller, ranks=False)
    worker = pods.template(job, settings, pods.node(job, settings), ranks=True)
    return {
        "slotsPerWorker": job.case.placement.ranks_per_node,
        "runPolicy": RUN,
        "sshAuthMountPath": pods.KEYS,
        "mpiReplicaSpecs": {"Launcher": replicas(1, launcher), "Worker": replicas(job.case.placement.nodes, worker)},
    }


def pytorch(job: Inside, settings: Settings, controller: Yaml) -> Yaml:
    """The master controls, and is the first node; rank 0 runs there."""
    master = pods.template(job, settings, controller, ranks=True)
    worker, place = pods.template(job, settings, pods.node(job, settings), ranks=True), job.case.placement
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


# By kind: the version of its schema, and what makes its specification.
KINDS: dict[str, tuple[str, Callable[[Inside, Settings, Yaml], Yaml]]] = {
    "Job": ("batch/v1", plain),
    "MPIJob": ("kubeflow.org/v2beta1", mpi),
    "PyTorchJob": ("kubeflow.org/v1", pytorch),
}
