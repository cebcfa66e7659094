"""Run under mpiexec: exchanges of integers, whose sums are exact in any order."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from adapters.caffempi import transfer
from adapters.caffempi.arena import Group, Span
from adapters.caffempi.exchange import NEAR, Exchange, Pace
from adapters.caffempi.planning import plan_for
from adapters.caffempi.ranks import Ranks

SPANS = [Span(0, 2500), Span(2500, 2500), Span(2500, 2516), Span(2516, 6016), Span(6016, 7000)]
WAYS = {"data_parallel": 0, "parameter_server": 0, "two_level": 2}  # strategy: ranks that make a node
# Many pieces, the last of each group a part; or each group whole.
PACES = {"layers": Pace(1000, 2, None), "thread": Pace(1000, 3, 1e-4), "whole": NEAR}
GROUPS = [Group(4, [4], SPANS[4]), Group(2, [2, 3], Span(2500, 6016)), Group(0, [0], SPANS[0])]


def overlapped(exchange: Exchange, own: np.ndarray, buffer: np.ndarray) -> Iterator[Span]:
    """As in training: each layer's gradient is written, then its lap called."""
    for layer in range(4, -1, -1):
        part = slice(*SPANS[layer])
        buffer[part] = own[part]
        exchange.lap(layer)
    yield from exchange.finish()


def one(ranks: Ranks, pace: Pace) -> dict[str, Any]:
    """Both ways of exchanging, a few times over."""
    own = np.random.RandomState(ranks.rank).randint(-1000, 1000, 7000).astype(np.float32)
    expected = np.sum(
        [np.random.RandomState(r).randint(-1000, 1000, 7000).astype(np.float32) for r in range(ranks.size)], axis=0
    )
    buffer = np.zeros_like(own)
    exchange = Exchange(buffer, GROUPS, ranks.way(pace.poll_s is not None), pace)
    right, timed = [], []
    for _ in range(5):
        arrived = []
        for span in overlapped(exchange, own, buffer):
            arrived.append(span)
            right.append(bool((buffer[span.begin : span.end] == expected[span.begin : span.end]).all()))
        buffer[:] = own
        exchange.whole(lambda group, seconds: timed.append([group.trigger, seconds]))
        right.append(bool((buffer == expected).all()))
    exchange.close()
    return {"right": right, "order": arrived, "timed": timed}


def failing() -> str:
    """What the training thread hears of a way that cannot be gone."""

    def way(piece: np.ndarray, number: int) -> Any:
        yield []
        raise ValueError(f"piece {number} is lost")

    exchange = Exchange(np.zeros(7000, np.float32), GROUPS, way, PACES["thread"])
    try:
        exchange.whole()
    except ValueError as error:
        return str(error)
    return "nothing"


def main() -> None:
    groups = {name: Ranks(name, node_ranks) for name, node_ranks in WAYS.items()}
    ranks = groups["data_parallel"]
    # Every rank measures other times; all must end with rank 0's plan.
    times = [float(ranks.rank * 1000 + 5 - index) for index in range(5)]
    plan = plan_for("merged", SPANS, ranks.comm, ranks.way(False), NEAR, lambda: times)
    transfer.SMALL = 2000  # else these few numbers would all go the library's way
    found = {f"{name} {how}": one(group, pace) for name, group in groups.items() for how, pace in PACES.items()}
    result = {
        "failure": failing(),
        "world": ranks.size,
        "nodes": {name: group.nodes for name, group in groups.items()},
        "found": ranks.comm.gather(found),
        "plans": ranks.comm.gather([[list(group) for group in plan.groups], list(plan.cost or ())]),
        "maximum": ranks.maximum(float(ranks.rank)),
    }
    if ranks.rank == 0:
        with open(sys.argv[1], "w") as stream:
            json.dump(result, stream)
    ranks.leave()


main()
