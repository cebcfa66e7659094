"""The jobs: Kubernetes' own, the MPI operator's, the training operator's.

After their schemas: batch/v1; kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go
(at caa3c47); kubeflow/training-operator, pkg/apis/kubeflow.org/v1/pytorch_types.go (v1.9.0).
"""

from cluster.kubernetes import pods
from cluster.kubernetes.inside import Inside, Settings
from cluster.kubernetes.pods import Yaml

NEVER = "Never"  # a run resumes when it is applied again; by itself it would hide what failed


def documents(job: Inside, settings: Settings, plan: str, folder: str) -> list[Yaml]:
    """All of one case: its plan, and the job that runs it. `plan` is the text of a plan with this one case."""
    made = {"Job": plain, "MPIJob": mpi, "PyTorchJob": pytorch}[job.kind](job, settings, folder)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about(job, settings), "data": {"plan.toml": plan}}
    return [config, made]


def about(job: Inside, settings: Settings) -> Yaml:
    found = {"app.kubernetes.io/name": "stagebench", "app.kubernetes.io/instance": job.name}
    return {"name": job.name, "namespace": settings.namespace, "labels": found}


def plain(job: Inside, settings: Settings, folder: str) -> Yaml:
    """One node needs no operator."""
    pod = pods.template(job, settings, pods.controller(job, settings, folder), ranks=True)
    pod["spec"] = {"restartPolicy": NEVER, **pod["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about(job, settings),
        "spec": {"backoffLimit": 0, "template": pod},
    }


def mpi(job: Inside, settings: Settings, folder: str) -> Yaml:
    """The launcher controls and computes nothing; a worker is a node."""
    launcher = pods.template(job, settings, pods.controller(job, settings, folder), ranks=False)
    worker = pods.template(job, settings, pods.node(job, settings), ranks=True)
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": about(job, settings),
        "spec": {
            "slotsPerWorker": job.case.placement.ranks_per_node,
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
            "sshAuthMountPath": pods.KEYS,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": NEVER, "template": launcher},
                "Worker": {"replicas": job.case.placement.nodes, "restartPolicy": NEVER, "template": worker},
            },
        },
    }


def pytorch(job: Inside, settings: Settings, folder: str) -> Yaml:
    """The master controls, and is the first node; rank 0 runs there."""
    master = pods.template(job, settings, pods.controller(job, settings, folder), ranks=True)
    worker = pods.template(job, settings, pods.node(job, settings), ranks=True)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": about(job, settings),
        "spec": {
            "nprocPerNode": str(job.case.placement.ranks_per_node),
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "restartPolicy": NEVER, "template": master},
                "Worker": {"replicas": job.case.placement.nodes - 1, "restartPolicy": NEVER, "template": worker},
            },
        },
    }
