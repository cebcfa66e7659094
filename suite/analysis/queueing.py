"""A queue in front of one server that takes batches: latencies predicted from how long a batch takes.

Queries arrive by a Poisson process. The server takes what waits, `most` at most, once it is free and either a whole
batch waits or the oldest query has waited long enough. It is simulated. With batches of one it is M/G/1, whose mean
wait Pollaczek and Khinchine give; the tests hold the simulation to that.
"""

import math
import random
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

QUERIES = 20_000  # of a simulation, at least


class Station(NamedTuple):
    """The server, and how it makes batches."""

    seconds: tuple[float, ...]  # of a batch of 1, 2, ... queries, the mean
    spread: tuple[float, ...] = (1.0,)  # factors of it, each as likely
    delay_s: float = 0.0  # that the oldest query waits for others
    since_arrival: bool = True  # whether it waits from its arrival, or from when the server takes it
    gap_s: float = 0.0  # between two batches
    beyond_s: float = 0.0  # of every query, on its way there and back


@lru_cache(maxsize=4096)
def latencies(rate: float, station: Station, queries: int, at_once: int = 1) -> tuple[float, ...]:
    """Return queries' seconds from arrival to answer, where `at_once` arrive together.

    The queue is empty at the begin of each try, of `queries`; as many tries are simulated as QUERIES want.
    """
    draw, found = random.Random(1), list[float]()
    most = len(station.seconds)
    while len(found) < QUERIES:
        times = accumulate(draw.expovariate(rate / at_once) for _ in range(math.ceil(queries / at_once)))
        arrivals = [at for at in times for _ in range(at_once)][:queries]
        free, done = 0.0, 0
        while done < queries:
            oldest = max(free, arrivals[done])
            waits = (arrivals[done] if station.since_arrival else oldest) + station.delay_s
            full = arrivals[min(done + most, queries) - 1]
            begin = max(oldest, min(full, waits))
            count = 1
            while count < most and done + count < queries and arrivals[done + count] <= begin:
                count += 1
            end = begin + station.seconds[count - 1] * draw.choice(station.spread)
            found += [end + station.beyond_s - arrival for arrival in arrivals[done : done + count]]
            free = end + station.gap_s
            done += count
    return tuple(found)
