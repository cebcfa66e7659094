"""Devices in a line: each does its part of every piece, as soon as its neighbour has done its own.

Eager TensorFlow works on a device while the thread waits, without the interpreter's lock:
a thread a device. Oldest Python: 3.6; standard library only.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, List, Sequence

Work = Callable[[int, int, Any], Any]  # (part, piece, what the neighbour made of the piece) -> what this part makes


class Line:
    """Runs work along the parts, forwards or backwards, and tells how long nobody worked."""

    def __init__(self, parts: int) -> None:
        """A thread a part, started when first needed."""
        self._parts, self._pool = parts, ThreadPoolExecutor(parts)

    def run(self, order: Sequence[int], begin: List[Any], work: Work) -> float:
        """The mean over the parts of the seconds in which a part did nothing, from the beginning to the last's end.

        `order`: the parts, the first is given `begin`, a value a piece. The first error of any part is raised.
        """
        start = time.perf_counter()
        made: List[List["Future[Any]"]] = [[Future() for _ in begin] for _ in order]
        for future, value in zip(made[0], begin):
            future.set_result(value)
        made.append([Future() for _ in begin])
        jobs = [
            self._pool.submit(self._part, part, made[place], made[place + 1], work) for place, part in enumerate(order)
        ]
        busy = [job.result() for job in jobs]
        return time.perf_counter() - start - sum(busy) / len(busy)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _part(self, part: int, incoming: List[Any], outgoing: List[Any], work: Work) -> float:
        busy = 0.0
        try:
            for piece, (comes, goes) in enumerate(zip(incoming, outgoing)):
                value = comes.result()
                start = time.perf_counter()
                result = work(part, piece, value)
                busy += time.perf_counter() - start
                goes.set_result(result)
        except BaseException as error:
            for goes in outgoing:  # or else the neighbour would wait for ever
                if not goes.done():
                    goes.set_exception(error)
            raise
        return busy
