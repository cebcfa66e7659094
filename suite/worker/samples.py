"""The timing of an operation on all ranks alike: as often as the time allows, every sample kept, scheduled starts.

Before each sample the ranks agree on the time at which it begins, on a common clock, soon, but not before all of them
know it. It lasts from then to the last rank's end. A sample that began right after a barrier would also count how far
apart the ranks leave the barrier. The delay of a late start is recorded. (Scheduled starts: SKaMPI, Worsch, Reussner
and Augustin, EuroPVM/MPI 2002; late ones: Hunold and Carpen-Amarie, IEEE TPDS 2016. These fix a row of starts at once:
there a stall makes the rest of the row late.)
"""

from typing import Callable, List, NamedTuple, Optional

from stagebench.suite.worker.common_clock import CommonClock
from stagebench.suite.worker.communicator import Communicator
from stagebench.suite.worker.contract import Call

LEAST, MOST = 5, 2000  # samples
WARM = 0.1  # the warm-up's time over the samples'; what it measures is dropped
DIGITS = 9  # a nanosecond
STRETCH = 0.5  # seconds between two agreements on the clock, about: drift may grow for so long


class Samples(NamedTuple):
    """The samples of one operation on this rank."""

    seconds: List[float]  # from the scheduled start to this rank's end
    late: List[float]  # seconds that this rank began after the scheduled start; [] without a schedule
    clock_error: float  # bound on the common clock's error, drift included


class Sampler:
    """A timer of operations; every method is called on all ranks at once, with the same operation."""

    def __init__(self, communicator: Communicator, seconds: float, progress: Callable[..., None]) -> None:
        """`seconds` for the samples of one operation, warm-up not counted; `progress` is an Outbox's."""
        self._communicator, self._seconds, self._progress = communicator, seconds, progress
        self._clock = CommonClock(communicator.rank, communicator.maximum, communicator.clock)

    def times(self, name: str, run: Call, scheduled: bool = True, most: Optional[int] = None) -> Samples:
        """Return this rank's samples of `run`, with at most `most` runs in all, if that is given.

        Without a schedule one sample follows the other: for an operation that keeps the ranks in step.
        """
        bound = 2 * MOST if most is None else most
        warmup = min(MOST, max(1, min(bound // 2, bound - LEAST)))
        warm = self._until(name, [run], WARM * self._seconds, warmup, scheduled, 1)
        count = len(warm[0].seconds)
        return self._until(name, [run], self._seconds, min(MOST, max(1, bound - count)), scheduled)[0]

    def alternating(self, name: str, runs: List[Call]) -> List[Samples]:
        """Return samples of each run, taken in turns, so that the machine's other work hits all alike."""
        self._until(name, runs, WARM * len(runs) * self._seconds, MOST, True, 1)
        return self._until(name, runs, len(runs) * self._seconds, MOST, True)

    def _until(
        self, name: str, runs: List[Call], seconds: float, most: int, scheduled: bool, least: int = LEAST
    ) -> List[Samples]:
        """Take blocks of samples, each as long as all before it, until the time is over on the slowest rank."""
        common, clock, error = self._clock, self._communicator.clock, 0.0
        found = [Samples([], [], 0.0) for _ in runs]
        block = min(least, most)
        begin = clock()
        while block:
            if scheduled:
                common.agree()
                error = max(error, common.error + common.drift)
            self._take(found, name, runs, block, scheduled)
            count, elapsed = len(found[0].seconds), self._communicator.maximum(clock() - begin)
            if elapsed >= seconds:
                break
            block = min(count, most - count, max(least, int(STRETCH * count / elapsed)))
        return [samples._replace(clock_error=error) for samples in found]

    def _take(self, found: List[Samples], name: str, runs: List[Call], count: int, scheduled: bool) -> None:
        common, synchronize, progress = self._clock, self._communicator.synchronize, self._progress
        clock = self._communicator.clock
        for number in range(count):
            for samples, run in zip(found, runs):
                begin = common.start() if scheduled else common.now()
                late = common.wait_for(begin) if scheduled else 0.0
                run()  # nothing else between the two clocks: a call of ours is a tenth of a short message
                synchronize()
                end = clock()
                samples.seconds.append(end + common.offset - begin)
                if scheduled:
                    samples.late.append(late)
            progress(name=name, phase="measure", step=number + 1, of=count)


def rounded(seconds: List[float]) -> List[float]:
    """Round to whole nanoseconds: more digits would be noise."""
    return [round(each, DIGITS) for each in seconds]
