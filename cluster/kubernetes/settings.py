"""What the command line says of the cluster."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One cluster, as the manifests name its things."""

    image: str
    namespace: str = "default"
    claim: str = "stagebench"  # the PersistentVolumeClaim that all pods share
    secret: str = "stagebench-ssh"  # keys for the pods of PyTorchJobs; the MPI operator makes its own
