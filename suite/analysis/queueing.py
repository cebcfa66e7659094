"""A queue in front of one server that takes batches: latencies predicted from how long a batch takes.

Queries arrive by a Poisson process. The server takes what waits, `most` at most, once it is free and either a whole
batch waits or the oldest query has waited `delay_s`. It is simulated. With batches of one it is M/D/1, whose mean wait
Pollaczek and Khinchine give; the tests hold the simulation to that.
"""

import random
from functools import lru_cache
from itertools import accumulate

QUERIES = 6_000  # of a simulation, at least


@lru_cache(maxsize=4096)
def latencies(rate: float, seconds: tuple[float, ...], delay_s: float, queries: int) -> tuple[float, ...]:
    """Return queries' seconds from arrival to answer; `seconds[n - 1]` are those of a batch of n.

    The queue is empty at the begin of each try, of `queries`; as many tries are simulated as QUERIES want.
    """
    draw, found = random.Random(1), list[float]()
    while len(found) < QUERIES:
        arrivals = list(accumulate(draw.expovariate(rate) for _ in range(queries)))
        most, free, done = len(seconds), 0.0, 0
        while done < queries:
            full = arrivals[min(done + most, queries) - 1]
            begin = max(free, arrivals[done], min(full, arrivals[done] + delay_s))
            count = 1
            while count < most and done + count < queries and arrivals[done + count] <= begin:
                count += 1
            free = begin + seconds[count - 1]
            found += [free - arrival for arrival in arrivals[done : done + count]]
            done += count
    return tuple(found)
