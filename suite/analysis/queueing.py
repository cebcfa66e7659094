"""A queue in front of one server that takes batches: latencies predicted from how long a batch takes.

Queries arrive by a Poisson process. The server takes what waits, `most` at most, once it is free and either a whole
batch waits or the oldest query has waited long enough. It is simulated. With batches of one it is M/G/1, whose mean
wait Pollaczek and Khinchine give; the tests hold the simulation to that. Slow batches come together, where a machine
has other work for a while, and queries pile up behind them: so batches take what measured ones took, in their order.
"""

import math
import random
from itertools import accumulate, cycle
from typing import NamedTuple

QUERIES = 20_000  # of a simulation, at least


class Station(NamedTuple):
    """The server, and how it makes batches."""

    seconds: tuple[float, ...]  # of a batch of 1, 2, ... queries, the mean
    series: tuple[tuple[float, ...], ...] = ((1.0,),)  # factors of it, as batches followed each other in several tries
    delay_s: float = 0.0  # that the oldest query waits for others
    since_arrival: bool = True  # whether it waits from its arrival, or from when the server takes it
    gap_s: float = 0.0  # between two batches


def latencies(rate: float, station: Station, queries: int, at_once: int = 1) -> tuple[float, ...]:
    """Return queries' seconds from arrival to answer, where `at_once` arrive together.

    The queue is empty at the begin of each try, of `queries` at most. As many tries are simulated as QUERIES want, and
    each takes one of the series, from anywhere in it.
    """
    draw, found = random.Random(1), list[float]()
    most = len(station.seconds)
    queries = min(queries, math.ceil(QUERIES / len(station.series)))
    for factors in cycle(station.series):
        times = accumulate(draw.expovariate(rate / at_once) for _ in range(math.ceil(queries / at_once)))
        arrivals = [at for at in times for _ in range(at_once)][:queries]
        free, done, place = 0.0, 0, draw.randrange(len(factors))
        while done < queries:
            oldest = max(free, arrivals[done])
            waits = (arrivals[done] if station.since_arrival else oldest) + station.delay_s
            full = arrivals[min(done + most, queries) - 1]
            begin = max(oldest, min(full, waits))
            count = 1
            while count < most and done + count < queries and arrivals[done + count] <= begin:
                count += 1
            end = begin + station.seconds[count - 1] * factors[place % len(factors)]
            found += [end - arrival for arrival in arrivals[done : done + count]]
            free = end + station.gap_s
            done += count
            place += 1
        if len(found) >= QUERIES:
            break
    return tuple(found)
