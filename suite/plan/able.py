"""Can the adapter do this case? What it cannot is `unsupported`, with the reason, beside the cases that it can."""

from suite.contracts import knobs
from suite.contracts.adapter import Adapter, Capabilities
from suite.contracts.case import Case
from workloads.graph import Graph


def refusal(adapter: Adapter, able: Capabilities, case: Case, graph: Graph) -> str | None:
    """Why the adapter cannot do the case; None when it can, as far as one can tell without running it."""
    return _by_strategy(adapter, able, case) or _by_values(adapter, able, case, graph) or adapter.unsupported(case)


def _by_strategy(adapter: Adapter, able: Capabilities, case: Case) -> str | None:
    strategy = able.strategy(case.strategy)
    if strategy is None:
        offers = ", ".join(offer.name for offer in able.strategies)
        return f"{adapter.name} has no strategy {case.strategy!r}; it has {offers}"
    ranks = case.placement.ranks
    if ranks > 1 and not strategy.distributed:
        instead = f"; it drives several devices from one: devices = {ranks}" if strategy.several_devices else ""
        return f"{adapter.name}'s strategy {case.strategy!r} trains on one rank, not on {ranks}{instead}"
    if case.placement.devices > 1 and not strategy.several_devices:
        instead = f"; it takes a rank for each: ranks = {case.placement.devices}" if strategy.distributed else ""
        return (
            f"{adapter.name}'s strategy {case.strategy!r} drives one device per rank, "
            f"not {case.placement.devices}{instead}"
        )
    held, all_devices = adapter.parts(case), case.placement.device_count
    if all_devices % held:
        return (
            f"{adapter.name}/{case.strategy} holds one network on {held} devices, and {all_devices} do not divide "
            f"by that; ask for {held} or {2 * held} of them"
        )
    if case.placement.launcher not in strategy.launchers:
        starts = ", ".join(strategy.launchers)
        return f"{adapter.name}/{case.strategy} is started by {starts}, not by {case.placement.launcher}"
    return None


def _by_values(adapter: Adapter, able: Capabilities, case: Case, graph: Graph) -> str | None:
    for what, value, offers in (
        ("device", case.placement.device, able.devices),
        ("precision", case.precision, able.precisions),
        ("tuning", case.tuning, able.tunings),
        ("optimiser", case.optimiser, able.optimisers),
    ):
        if value not in offers:
            return f"{adapter.name} does not do {what} {value!r}; it does {', '.join(offers)}"
    if case.data != "synthetic" and not able.real_data:
        return f"{adapter.name} does not read real data; use data = 'synthetic'"
    problem = knobs.refusal(adapter.name, able.knobs, case.strategy, case.knobs)
    if problem:
        return problem
    lacking = sorted({layer.kind for layer in graph.layers} - set(able.layer_kinds)) if able.layer_kinds else []
    return f"{adapter.name} has no layers of kind {', '.join(lacking)}" if lacking else None
