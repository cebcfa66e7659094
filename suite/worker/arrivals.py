"""LoadGen's load `server`: queries of one sample arrive by a Poisson process and wait to be batched.

Latency is counted from the *scheduled* arrival, so a query that waits because another one took long is late, and said
to be. In process no other process sends: arrivals are points in time, and a query is taken from the queue once its own
has passed. `stagebench.suite.worker.model_server` has a model server take the queries.
"""

import bisect
import itertools
import time
from functools import partial
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import numpy as np

from stagebench.suite.worker.case_parts import BURST, FLOORS, PER_DECADE, ROUNDS, Serving
from stagebench.suite.worker.common_clock import wait_until
from stagebench.suite.worker.contract import Call, Unsupported
from stagebench.suite.worker.evidence import distance
from stagebench.suite.worker.job import Measure
from stagebench.suite.worker.messages import PARTS_INSIDE, PREDICTOR_PARTS, Try
from stagebench.suite.worker.predictor import Predictor

LEAST = 0.3  # of the capacity, which full batches reach: the lowest rate that is tried
TIMED = 10  # full batches that tell the capacity
LONGEST_S = 300.0  # of all tries
HOPELESS = 5.0  # times the bound: a queue whose oldest query waits so long has more to do than it can
KEPT = 256 << 20  # bytes of the first answers of a try, which are compared after it
WATCHED_S = 0.02  # before an arrival: a process that sleeps for less may get its core back milliseconds late
OFF = 1e-4, 5e-2  # a wrong answer is further from the usual one, relative to its norm: in float32 or float64, else


class Asked:
    """Samples that are asked for in turn, and the predictor's usual answers to them."""

    def __init__(self, predictor: Predictor, samples: np.ndarray) -> None:
        """The network is loaded. Unsupported: its answers are not finite."""
        self.predictor, self.samples = predictor, samples
        self.right = np.concatenate([predictor.answer(samples[at : at + 1]) for at in range(len(samples))])
        if not np.isfinite(self.right).all():
            raise Unsupported("the predictor's own answers are not finite numbers, so none can be compared")
        most = predictor.setup.batch
        self.sizes = sorted({min(most, 1 << power) for power in range(most.bit_length() + 1)})  # that are compiled for
        self.bound = OFF[predictor.setup.precision not in ("float32", "float64")]
        nearest = min(distance(one, other) for one, other in itertools.combinations(self.right, 2))
        self.tells = nearest > 2.0 * self.bound  # else an answer may well be another query's
        self.spent = [0.0] * len(PREDICTOR_PARTS)  # seconds, added up over queries

    def answers(self, queries: np.ndarray) -> np.ndarray:
        """Answer queries; for a framework that compiles for shapes they are filled up to a power of two."""
        begin = time.perf_counter()
        count, asked = len(queries), queries
        if self.predictor.compiles:
            most = min(self.predictor.setup.batch, 1 << (count - 1).bit_length())
            asked = queries[np.resize(np.arange(count), most)]
        filled = time.perf_counter()
        placed = self.predictor.place(asked)
        there = time.perf_counter()
        begun = self.predictor.run(placed)
        self.predictor.synchronize()
        computed = time.perf_counter()
        found = self.predictor.fetch(begun)
        times = (begin, filled, there, computed, time.perf_counter())
        for part in range(len(PREDICTOR_PARTS)):
            self.spent[part] += count * (times[part + 1] - times[part])
        return found if len(found) == count else found[:count].copy()  # no view, which would keep the whole

    def batch(self, numbers: Sequence[int]) -> np.ndarray:
        """Return the samples of these queries."""
        taken: np.ndarray = self.samples[np.asarray(numbers) % len(self.samples)]
        return taken

    def wrong(self, answers: np.ndarray) -> int:
        """Count answers that are not those to their own queries; the first query's comes first."""
        pairs = zip(answers, itertools.cycle(self.right))
        return sum(not distance(answer, right) <= self.bound for answer, right in pairs)


def tries(
    attempt: Callable[[float, np.ndarray], Try],
    capacity: float,
    task: Measure,
    seed: int,
    progress: Callable[..., None],
) -> Iterator[Try]:
    """Try rates up to the capacity, in queries/s, for the task's seconds and what the percentile wants; or its trace.

    `attempt` is given a rate and the times of arrivals, from 0.
    """
    if task.trace:
        plan = [(len(task.trace) / task.trace[-1], len(task.trace))]
    else:
        plan = _rates(capacity, task.serving.bound_share, task.sampling.seconds)
    done = itertools.count(1)
    random = np.random.RandomState(seed)
    for number in range(ROUNDS):
        for rate, count in plan[:: 1 if number % 2 == 0 else -1]:
            due = np.asarray(task.trace) if task.trace else _arrivals(random, rate, count, task.serving.arrivals)
            yield attempt(rate, due)
            progress(name="server", phase="measure", step=next(done), of=ROUNDS * len(plan))


def _rates(capacity: float, share: float, seconds: float) -> List[Tuple[float, int]]:
    """Return the rates, lowest first, and how many queries arrive at each in a round."""
    first = int(np.ceil(PER_DECADE * np.log10(LEAST * capacity)))
    rates = [10.0 ** (number / PER_DECADE) for number in range(first, first + PER_DECADE)]
    rates = [rate for rate in rates if rate <= capacity]
    wanted = FLOORS[share] / ROUNDS
    counts = [int(max(wanted, rate * seconds / (ROUNDS * len(rates)))) + 1 for rate in rates]
    needed = ROUNDS * sum(count / rate for count, rate in zip(counts, rates))
    if needed > max(LONGEST_S, 2.0 * seconds):
        remedy = "take a smaller network" if share == min(FLOORS) else "write 0.9, or take a smaller network"
        raise Unsupported(
            f"bound_share = {share:g} wants {wanted * ROUNDS:.0f} queries at each of {len(rates)} "
            f"rates up to {capacity:.3g}/s, {needed:.0f} s in all; {remedy}"
        )
    return list(zip(rates, counts))


def _arrivals(random: np.random.RandomState, rate: float, count: int, how: str) -> np.ndarray:
    """Return the times of `count` arrivals by a Poisson process, of single queries or of bursts."""
    at_once = BURST if how == "bursts" else 1
    times = np.cumsum(random.exponential(at_once / rate, -(-count // at_once)))
    return np.repeat(times, at_once)[:count]


class InProcess:
    """A queue in this process, without a server."""

    def __init__(self, asked: Asked, rule: Serving) -> None:
        self._asked, self._rule = asked, rule

    def capacity(self) -> float:
        """Return the queries/s that full batches reach, or smaller ones if those reach more."""
        asked = self._asked
        return max(size / _usual(partial(asked.answers, asked.batch(range(size))), TIMED) for size in asked.sizes)

    def attempt(self, rate: float, due: np.ndarray) -> Try:
        """Answer queries that arrive at these times."""
        rule, most = self._rule, self._asked.predictor.setup.batch
        latencies: List[float] = []
        sizes: List[int] = []
        batch_s: List[float] = []
        right = self._asked.right
        # Kept one by one, small answers would scatter over the memory and hold all of it.
        kept = np.empty((min(len(due), KEPT // right[0].nbytes * self._asked.tells),) + right.shape[1:], right.dtype)
        stages = dict.fromkeys(PARTS_INSIDE, 0.0)
        spent = self._asked.spent = [0.0] * len(PREDICTOR_PARTS)
        begin = time.perf_counter()
        arrivals = (begin + due).tolist()
        while len(latencies) < len(arrivals):
            first = len(latencies)
            wait_until(arrivals[first], watched=WATCHED_S)
            full = arrivals[min(first + most, len(arrivals)) - 1]
            wait_until(min(full, arrivals[first] + rule.max_delay_ms / 1000.0), watched=WATCHED_S)
            taken = time.perf_counter()
            count = min(most, bisect.bisect_right(arrivals, taken) - first)
            found = self._asked.answers(self._asked.batch(range(first, first + count)))
            done = time.perf_counter()
            kept[first : first + count] = found[: max(0, len(kept) - first)]
            own = arrivals[first : first + count]
            latencies += [done - arrival for arrival in own]
            sizes.append(count)
            batch_s.append(done - taken)
            stages["queue"] += sum(taken - arrival for arrival in own)
            stages["assembly"] += count * (done - taken)
            if taken - own[0] > HOPELESS * rule.bound_ms / 1000.0:
                break
        stages.update(zip(PREDICTOR_PARTS[1:], spent[1:]))
        stages["assembly"] -= sum(spent[1:])
        return Try(
            rate=rate,
            scheduled=len(arrivals),
            latency_s=latencies,
            batches=sizes,
            batch_s=batch_s,
            stage_s={name: spent / len(latencies) for name, spent in stages.items()},
            wall_s=time.perf_counter() - begin,
            compared=min(len(kept), len(latencies)),
            wrong=self._asked.wrong(kept[: len(latencies)]),
        )


def _usual(work: Call, times: int) -> float:
    """Return the median seconds of a call."""
    taken: List[Any] = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))
