"""A time line for frameworks that return before a step is done and have no events for its end.

Oldest Python: 3.6.
"""

import time
from collections import deque
from typing import Any, Callable, Deque, Optional, Tuple


class Moment:
    """A moment in seconds on the monotonic clock; None until the host has seen it come."""

    def __init__(self, at: Optional[float] = None) -> None:
        self.at = at

    def __sub__(self, earlier: "Moment") -> float:
        """Return the seconds between two moments; after `StepEnds.settle` both are known."""
        if self.at is None or earlier.at is None:
            raise RuntimeError("the device is still at work: synchronize before you ask for the time between two marks")
        return self.at - earlier.at


class StepEnds:
    """The times at which steps were done, noted by the host while it waits for its steps, the first one first.

    The host must not run ahead without end. So when more than `behind` steps are under way, it waits for the first half
    of them, never for all: the device would have nothing to do. At the end it waits for the rest (`settle`).
    """

    def __init__(self, behind: int, wait: Callable[[Any], Any], ready: Callable[[Any], bool] = lambda _: False) -> None:
        """`behind`: steps that may be under way when the host continues. `wait` returns when a step's result is ready.

        `ready` returns whether it is, if a framework can tell: `asked` then notes finished steps at once.
        """
        self.behind = behind
        self._wait = wait
        self._ready = ready
        self._under_way: Deque[Tuple[Moment, Any]] = deque()

    def asked(self, result: Any) -> None:
        """Note that a step was asked for that leaves `result`, which no later step overwrites."""
        self._under_way.append((Moment(), result))
        if len(self._under_way) > self.behind:
            for _ in range(max(1, self.behind // 2)):
                self._note()
        while self._under_way and self._ready(self._under_way[0][1]):
            self._note()

    def mark(self) -> Moment:
        """Return the moment when the last step is done; now, if none is under way."""
        return self._under_way[-1][0] if self._under_way else Moment(time.perf_counter())

    def settle(self) -> None:
        """Wait for all steps."""
        while self._under_way:
            self._note()

    def _note(self) -> None:
        moment, result = self._under_way[0]
        self._wait(result)
        moment.at = time.perf_counter()
        self._under_way.popleft()
