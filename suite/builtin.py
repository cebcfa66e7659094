"""The built-in workloads, registered like a third party's."""

from suite.contracts.hooks import hookimpl
from workloads.catalogue import Workload
from workloads.networks import BUILT_IN


@hookimpl
def stagebench_workloads() -> list[Workload]:
    """Return the networks of `workloads.networks`."""
    return BUILT_IN
