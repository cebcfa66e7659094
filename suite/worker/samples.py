"""Times an operation on all ranks alike: as often as a time allows, every sample kept, skew apart from transfer.

Before every sample stands a barrier. A rank's time in it tells how early it came: the
difference between the longest and the shortest wait is the spread of the ranks'
arrivals, without any clock in common. The sample begins when the barrier is over.
"""

from typing import Any, Callable, List, NamedTuple, Optional

from suite.worker.communicator import Communicator

LEAST, MOST = 5, 2000  # samples
WARM = 0.1  # of the time is a warm-up; what it measures is dropped
DIGITS = 9  # a nanosecond

Samples = NamedTuple("Samples", [("seconds", List[float]), ("waits", List[float])])


class Sampler:
    """Every method is called on all ranks at once, with the same operation."""

    def __init__(self, communicator: Communicator, seconds: float, progress: Callable[..., None]) -> None:
        """`seconds` for the samples of one operation, warm-up not counted; `progress` is an Outbox's."""
        self._communicator, self._seconds, self._progress = communicator, seconds, progress

    def times(self, name: str, run: Callable[[], Any], apart: bool = True, most: Optional[int] = None) -> Samples:
        """This rank's samples of `run`, at most `most` runs in all where that is given.

        Without `apart` there is no barrier, and there are no waits: for what keeps the ranks in step by itself.
        """
        bound = 2 * MOST if most is None else most
        warm = self._until(name, [run], WARM * self._seconds, min(MOST, max(1, bound // 2)), apart, 1)
        count = len(warm[0].seconds)
        return self._until(name, [run], self._seconds, min(MOST, max(1, bound - count)), apart)[0]

    def alternating(self, name: str, runs: List[Callable[[], Any]]) -> List[Samples]:
        """Samples of each, taken in turns, so that whatever else the machine does hits all alike."""
        self._until(name, runs, WARM * self._seconds, MOST, True, 1)
        return self._until(name, runs, len(runs) * self._seconds, MOST, True)

    def _until(
        self, name: str, runs: List[Callable[[], Any]], seconds: float, most: int, apart: bool, least: int = LEAST
    ) -> List[Samples]:
        """Blocks of samples, each as long as all before it, until the slowest rank says that the time is over."""
        found = [Samples([], []) for _ in runs]
        block, clock = min(least, most), self._communicator.clock
        self._communicator.barrier()
        begin = clock()
        while block:
            self._take(found, name, runs, block, apart)
            if self._communicator.maximum(clock() - begin) >= seconds:
                break
            block = min(len(found[0].seconds), most - len(found[0].seconds))
        return found

    def _take(self, found: List[Samples], name: str, runs: List[Callable[[], Any]], count: int, apart: bool) -> None:
        communicator, progress = self._communicator, self._progress
        clock, barrier, synchronize = communicator.clock, communicator.barrier, communicator.synchronize
        for number in range(count):
            for samples, run in zip(found, runs):
                if apart:
                    came = clock()
                    barrier()
                    begin = clock()
                    samples.waits.append(begin - came)
                else:
                    begin = clock()
                run()
                synchronize()
                samples.seconds.append(clock() - begin)
            progress(name=name, phase="measure", step=number + 1, of=count)


def rounded(seconds: List[float]) -> List[float]:
    """Whole nanoseconds: more digits would be noise."""
    return [round(each, DIGITS) for each in seconds]
