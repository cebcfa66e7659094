"""How several ranks train one net: the strategy's way, with its plan of messages and their pace.

Oldest Python: 3.6.
"""

from typing import Any, Callable, Dict, List

from adapters.caffempi.alone import Alone
from adapters.caffempi.exchange import FAR, NEAR, Exchange, Pace
from adapters.caffempi.net import Net
from adapters.caffempi.planning import Plan, plan_for
from adapters.caffempi.ranks import Ranks
from adapters.caffempi.served import Served
from adapters.caffempi.summed import Summed
from suite.worker.contract import Setup


def together(setup: Setup, ranks: Ranks, net: Net, ready_s: Callable[[], List[float]]) -> Alone:
    """The way of a strategy; all ranks come here. `ready_s` measures when each layer's gradient is ready."""
    overlap, pace = overlap_of(setup), pace_of(setup, ranks)
    arena, way = net.arena, ranks.way(pace is FAR)
    plan = plan_for(overlap, arena.spans, ranks.comm, way, pace, ready_s, arena.gradients.element_size())
    told = told_of(overlap, net, plan, pace, ranks)
    if setup.strategy == "parameter_server_async":
        return Served(net, setup.optimiser, ranks, plan.groups, pace, told)
    exchange = Exchange(arena.gradients.numpy(), plan.groups, way, pace)
    return Summed(net, setup.optimiser, exchange, setup.world, told)


def overlap_of(setup: Setup) -> str:
    """When gradients leave."""
    asked = setup.knobs.get("overlap", "auto")
    if asked != "auto":
        return str(asked)
    return "merged" if setup.tuning == "tuned" else "layerwise"


def pace_of(setup: Setup, ranks: Ranks) -> Pace:
    """Within a machine a core copies what is sent: a thread could only take turns with the one that computes."""
    asked = setup.knobs.get("progress", "auto")
    if asked == "auto":
        asked = "thread" if ranks.nodes > 1 else "layers"
    return FAR if asked == "thread" else NEAR


def told_of(overlap: str, net: Net, plan: Plan, pace: Pace, ranks: Ranks) -> Dict[str, Any]:
    """What a reader of the record should know of it."""
    names = [slot.layer.name for slot in net.slots]
    found: Dict[str, Any] = {
        "overlap": overlap,
        "groups": [[names[index] for index in group.layers] for group in plan.groups],
        "nodes": ranks.nodes,
        "progress": "between layers" if pace.poll_s is None else "a thread, every %g ms" % (1e3 * pace.poll_s),
        "in_flight_bytes": pace.piece * pace.window * net.arena.gradients.element_size(),
    }
    if plan.cost is not None:
        found.update(plan.cost._asdict())
    return found
