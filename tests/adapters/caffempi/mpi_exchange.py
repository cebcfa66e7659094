"""Run under mpiexec: exchanges of integers, whose sums are exact in any order."""

import json
import sys
from functools import partial

import numpy as np
import torch

from stagebench.adapters.caffempi import transfer
from stagebench.adapters.caffempi.exchange import NEAR, Exchange, Pace
from stagebench.adapters.caffempi.memory import Host
from stagebench.adapters.caffempi.merge import Link, plan_for
from stagebench.adapters.caffempi.net import Group, Span
from stagebench.adapters.caffempi.transfer import Ranks
from tests.adapters.caffempi.late import Handed, staged

SPANS = [Span(0, 2500), Span(2500, 2500), Span(2500, 2516), Span(2516, 6016), Span(6016, 7000)]
# strategy: ranks that make a node, how a piece travels
STRATEGIES = {
    "data_parallel": (None, lambda ranks: partial(transfer.all_reduce, ranks.comm)),
    "library": (None, lambda ranks: partial(transfer.library_all_reduce, ranks.comm)),
    "parameter_server": (None, lambda ranks: partial(transfer.star, ranks.comm)),
    "two_level": (2, lambda ranks: partial(transfer.two_level, ranks.node, ranks.leaders)),
}
WAITING = (None, lambda ranks: partial(transfer.waiting_all_reduce, ranks.comm))
MEMORIES = {
    "host": (Host, STRATEGIES),
    "staged": (staged, STRATEGIES),
    "handed": (Handed, {"waiting": WAITING}),
}
# Many pieces, the last of each group a part; or each group whole.
PACES = {"layers": Pace(1000, 2, None), "thread": Pace(1000, 3, 1e-4), "whole": NEAR}
GROUPS = [Group(4, [4], SPANS[4]), Group(2, [2, 3], Span(2500, 6016)), Group(0, [0], SPANS[0])]


def overlapped(exchange, own, buffer):
    """As in training: each layer's gradient is written, then the exchange told."""
    for layer in range(4, -1, -1):
        part = slice(*SPANS[layer])
        buffer[part] = own[part]
        exchange.layer_done(layer)
    yield from exchange.finish()


def one(ranks, memory, travels, pace):
    """Both ways of exchanging, a few times over."""
    own = np.random.RandomState(ranks.rank).randint(-1000, 1000, 7000).astype(np.float32)
    expected = np.sum(
        [np.random.RandomState(r).randint(-1000, 1000, 7000).astype(np.float32) for r in range(ranks.size)], axis=0
    )
    buffer = np.zeros_like(own)
    exchange = Exchange(memory(torch.from_numpy(buffer)), GROUPS, travels, pace)
    right, timed = [], []
    for _ in range(5):
        arrived = []
        for span in overlapped(exchange, own, buffer):
            arrived.append(span)
            right.append(bool((buffer[span.begin : span.end] == expected[span.begin : span.end]).all()))
        buffer[:] = own
        exchange.run(lambda group, seconds: timed.append([group.trigger, seconds]))
        right.append(bool((buffer == expected).all()))
    exchange.close()
    return {"right": right, "order": arrived, "timed": timed}


def failing():
    """What the training thread gets of a piece that does not arrive."""

    def lost(piece, number):
        yield []
        raise ValueError(f"piece {number} is lost")

    exchange = Exchange(Host(torch.zeros(7000)), GROUPS, lost, PACES["thread"])
    try:
        exchange.run()
    except ValueError as error:
        return str(error)
    return "nothing"


def main():
    all_of_them = {**STRATEGIES, "waiting": WAITING}
    groups = {name: Ranks(node_ranks) for name, (node_ranks, _) in all_of_them.items()}
    ranks = groups["data_parallel"]
    # Every rank measures other times; all must end with rank 0's plan.
    times = [float(ranks.rank * 1000 + 5 - index) for index in range(5)]
    link = Link(ranks.comm, partial(transfer.library_all_reduce, ranks.comm), NEAR)
    plan = plan_for("merged", SPANS, link, lambda: times)
    transfer.SMALL = 2000  # else the library would sum all of these few numbers
    found = {
        f"{kind} {name} {how}": one(groups[name], memory, travels(groups[name]), pace)
        for kind, (memory, strategies) in MEMORIES.items()
        for name, (_, travels) in strategies.items()
        for how, pace in PACES.items()
    }
    result = {
        "failure": failing(),
        "world": ranks.size,
        "nodes": {name: groups[name].nodes for name in STRATEGIES},
        "found": ranks.comm.gather(found),
        "plans": ranks.comm.gather([[list(group) for group in plan.groups], list(plan.cost or ())]),
        "maximum": ranks.maximum(float(ranks.rank)),
    }
    if ranks.rank == 0:
        with open(sys.argv[1], "w") as stream:
            json.dump(result, stream)
    ranks.close()


main()
