"""LoadGen's load `server`, in process: queries of one sample arrive by a Poisson process and wait to be batched.

Latency is counted from the *scheduled* arrival, so a query that waits because another one took long is late, and said
to be. No other process sends: arrivals are points in time, and a query is taken from the queue once its own has passed.
"""

import bisect
import itertools
import time
from functools import partial
from typing import Any, Callable, List, Sequence

import numpy as np

from suite.worker.case_parts import FLOORS, Serving
from suite.worker.common_clock import wait_until
from suite.worker.contract import Call, Unsupported
from suite.worker.evidence import distance
from suite.worker.messages import Try
from suite.worker.predictor import Predictor

LEAST = 0.3  # of the capacity, which full batches reach: the lowest rate that is tried
PER_DECADE = 10  # rates: 1, 1.26, 1.58, ..., the same for all cases, whose latencies can then be compared
ROUNDS = 2  # of all rates, the second one backwards: drift hits all alike
TIMED = 10  # full batches that tell the capacity
LONGEST_S = 300.0  # of all tries
HOPELESS = 5.0  # times the bound: a queue whose oldest query waits so long has more to do than it can
KEPT = 256 << 20  # bytes of the first answers of a try, which are compared after it
OFF = 1e-4, 5e-2  # a wrong answer is further from the usual one, relative to its norm: in float32 or float64, else


class Arrivals:
    """Tries of one predictor at several rates."""

    def __init__(self, predictor: Predictor, samples: np.ndarray, rule: Serving, progress: Callable[..., None]) -> None:
        """`samples` are asked for in turn."""
        self._predictor, self._samples, self._rule, self._progress = predictor, samples, rule, progress
        self._right = [predictor.answer(samples[at : at + 1])[0] for at in range(len(samples))]
        self._bound = OFF[predictor.setup.precision not in ("float32", "float64")]
        nearest = min(distance(one, other) for one, other in itertools.combinations(self._right, 2))
        self._tells = nearest > 2.0 * self._bound  # else an answer may well be another query's

    def batch_seconds(self) -> List[float]:
        """Return the seconds of a batch of 1, 2, ... queries: powers of two are timed, the others lie between them."""
        most = self._predictor.setup.batch
        sizes = sorted({min(most, 1 << power) for power in range(most.bit_length() + 1)})
        seconds = [_usual(partial(self._predictor.answer, self._batch(range(size))), TIMED) for size in sizes]
        return np.interp(range(1, most + 1), sizes, seconds).tolist()  # type: ignore[no-any-return]

    def tries(self, capacity: float, seconds: float) -> List[Try]:
        """Try rates up to the capacity, in queries/s, for `seconds`, and for what the percentile wants."""
        first = int(np.ceil(PER_DECADE * np.log10(LEAST * capacity)))
        rates = [10.0 ** (number / PER_DECADE) for number in range(first, first + PER_DECADE)]
        rates = [rate for rate in rates if rate <= capacity]
        wanted = FLOORS[self._rule.bound_share] / ROUNDS
        counts = [int(max(wanted, rate * seconds / (ROUNDS * len(rates)))) + 1 for rate in rates]
        needed = ROUNDS * sum(count / rate for count, rate in zip(counts, rates))
        if needed > max(LONGEST_S, 2.0 * seconds):
            raise Unsupported(
                f"bound_share = {self._rule.bound_share:g} wants {wanted * ROUNDS:.0f} queries at each of {len(rates)} "
                f"rates up to {capacity:.3g}/s, {needed:.0f} s in all; write 0.9, or take a smaller network"
            )
        found = []
        random = np.random.RandomState(self._predictor.setup.seed)
        for number in range(ROUNDS):
            for rate, count in list(zip(rates, counts))[:: 1 if number % 2 == 0 else -1]:
                found.append(self._try(rate, np.cumsum(random.exponential(1.0 / rate, count))))
                self._progress(name="server", phase="measure", step=len(found), of=ROUNDS * len(rates))
        return found

    def _try(self, rate: float, due: np.ndarray) -> Try:
        rule, most = self._rule, self._predictor.setup.batch
        latencies: List[float] = []
        sizes: List[int] = []
        answers: List[np.ndarray] = []
        room = KEPT if self._tells else 0
        stages = {"queue": 0.0, "assembly": 0.0, "inference": 0.0}
        begin = time.perf_counter()
        arrivals = (begin + due).tolist()
        while len(latencies) < len(arrivals):
            first = len(latencies)
            wait_until(arrivals[first])
            full = arrivals[min(first + most, len(arrivals)) - 1]
            wait_until(min(full, arrivals[first] + rule.max_delay_ms / 1000.0))
            taken = time.perf_counter()
            count = min(most, bisect.bisect_right(arrivals, taken) - first)
            placed = self._batch(range(first, first + count))
            built = time.perf_counter()
            found = self._answer(placed, count)
            done = time.perf_counter()
            room -= found.nbytes
            if room >= 0:
                answers.append(found)
            own = arrivals[first : first + count]
            latencies += [done - arrival for arrival in own]
            sizes.append(count)
            stages["queue"] += sum(taken - arrival for arrival in own)
            stages["assembly"] += count * (built - taken)
            stages["inference"] += count * (done - built)
            if taken - own[0] > HOPELESS * rule.bound_ms / 1000.0:
                break
        wall = time.perf_counter() - begin
        return Try(
            rate=rate,
            latency_s=latencies,
            batches=sizes,
            stage_s={name: spent / len(latencies) for name, spent in stages.items()},
            wall_s=wall,
            scheduled=len(arrivals),
            compared=sum(map(len, answers)),
            wrong=self._wrong(answers),
        )

    def _batch(self, numbers: Sequence[int]) -> np.ndarray:
        """Return the samples of these queries; filled up to a power of two for a framework that compiles for shapes."""
        places = np.asarray(numbers) % len(self._samples)
        if self._predictor.compiles:
            places = np.resize(places, min(self._predictor.setup.batch, 1 << (len(places) - 1).bit_length()))
        taken: np.ndarray = self._samples[places]
        return taken

    def _answer(self, placed: np.ndarray, count: int) -> np.ndarray:
        found = self._predictor.answer(placed)
        return found if len(found) == count else found[:count].copy()  # no view, which would keep the whole

    def _wrong(self, answers: List[np.ndarray]) -> int:
        """Count answers that are not those to their own queries; the first query's comes first."""
        every = (answer for batch in answers for answer in batch)
        return sum(
            not distance(answer, right) <= self._bound for answer, right in zip(every, itertools.cycle(self._right))
        )


def _usual(work: Call, times: int) -> float:
    """Return the median seconds of a call."""
    taken: List[Any] = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))
