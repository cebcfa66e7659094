"""The built-in workloads, registered like a third party's."""

from stagebench.suite.contracts.hooks import hookimpl
from stagebench.workloads.catalogue import Workload
from stagebench.workloads.networks import BUILT_IN


@hookimpl
def stagebench_workloads() -> list[Workload]:
    """Return the networks of `stagebench.workloads.networks`."""
    return BUILT_IN
