"""The stage clock: a mark at every border between stages."""

from typing import Any, Dict, List

from stagebench.suite.worker.trainer import Trainer

STAGES = ("io", "h2d", "forward", "backward", "skew", "communication", "update")


class StageClock:
    """A clock that marks the borders of stages and computes their seconds at the end.

    Iterations of a block follow each other without a gap: each begins at the last mark of the one before, so that the
    time between them (the release of the old batch, the loop's own few microseconds) counts in the next `io`, and the
    stages add up to the wall time.

    If marks are events on the device's own time line, the host runs ahead as in a native step, and `io` is the time
    that the device waits for input. Otherwise the host waits for the device at every border.
    """

    def __init__(self, trainer: Trainer, untimed: int = 0) -> None:
        """Use the trainer's own time line; `untimed`: the first iterations of a block, after which ranks meet."""
        self._synchronize, self._mark, self._elapsed = trainer.synchronize, trainer.mark, trainer.elapsed
        self._waits = not trainer.has_device_marks()
        self._iterations: List[List[Any]] = []
        self._block = 0  # the iterations of earlier blocks
        self._untimed = untimed

    def begin(self) -> None:
        """Start an iteration at the end of the one before, if that belongs to the same steps."""
        follows = len(self._iterations) - self._block not in (0, self._untimed)
        self._iterations.append([self._iterations[-1][-1] if follows else self._mark()])

    def lap(self) -> None:
        """End a stage and begin the next one."""
        if self._waits:
            self._synchronize()
        self._iterations[-1].append(self._mark())

    def end_block(self, counts: bool) -> slice:
        """Drop what does not count: a block's untimed iterations, or all of it; return where that stood among all."""
        dropped = slice(self._block, self._block + self._untimed if counts else None)
        del self._iterations[dropped]
        self._block = len(self._iterations)
        return dropped

    def seconds(self) -> Dict[str, List[float]]:
        """Return the seconds of every iteration, by stage; call it after a last `synchronize`."""
        columns: Dict[str, List[float]] = {stage: [] for stage in STAGES}
        for marks in self._iterations:
            for stage, begin, end in zip(STAGES, marks, marks[1:]):
                columns[stage].append(self._elapsed(begin, end))
        return columns
