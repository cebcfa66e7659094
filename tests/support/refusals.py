"""Why an adapter refuses a case, as a plan's check finds it: the declaration first, then the adapter's own words."""

from suite.contracts.adapter import Adapter
from suite.contracts.case import Case
from suite.plan import checks
from workloads.networks import by_name


def refusal(adapter: Adapter, case: Case) -> str | None:
    """None where it does not; no launcher is asked."""
    return checks.refusal(adapter, adapter.capabilities, case, by_name()[case.workload].graph(), {})
