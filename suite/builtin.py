"""The built-in workloads, registered as a third party's would be."""

from suite.contracts.hooks import hookimpl
from workloads.catalogue import Workload
from workloads.networks import BUILT_IN


@hookimpl
def stagebench_workloads() -> list[Workload]:
    """The networks of `workloads.networks`."""
    return BUILT_IN
