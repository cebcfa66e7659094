"""The predictor's end of the memory shared with a model server's workers (`stagebench.suite.worker.shared_answers`).

One thread answers one batch after the other. The hop through the memory and back is timed: from when a worker begins to
hand a batch over, or the predictor is free for it, until the worker has the answers, without the predictor's own work.
"""

import mmap
import os
import selectors
import socket
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from stagebench.suite.worker.arrivals import Asked
from stagebench.suite.worker.contract import Unavailable
from stagebench.suite.worker.messages import PREDICTOR_PARTS
from stagebench.suite.worker.shared_answers import LINE, NUMBER, TIMES, Served, bounds


class Seen(NamedTuple):
    """A host's view of the queries of one task of the generator."""

    batches: List[Tuple[float, int]]  # the predictor's seconds, queries
    spent: List[float]  # seconds in each of PREDICTOR_PARTS, added up over queries
    hop_s: float = 0.0  # as `spent`, with them
    taken_s: float = 0.0  # moments at which workers had answers, added up over queries
    taken: int = 0  # queries whose answers a worker has taken
    processes: int = 0  # of the server, after the task
    resident_bytes: int = 0  # of all of them
    cpu_s: float = 0.0  # that they spent in the task

    @property
    def queries(self) -> int:
        """The queries that reached the predictor."""
        return sum(count for _, count in self.batches)

    def parts(self) -> Dict[str, float]:
        """Return the mean seconds of a query in the hop and in the parts of the predictor."""
        queries = max(1, self.queries)
        spent = {part: seconds / queries for part, seconds in zip(PREDICTOR_PARTS, self.spent)}
        return dict(spent, hop=self.hop_s / queries - sum(spent.values()))

    def taken_at(self, queries: int) -> Optional[float]:
        """Return the mean moment at which workers had the answers to these queries; None if they had others, too."""
        return self.taken_s / queries if 0 < queries == self.taken == self.queries else None


class Answering:
    """Answers the batches of as many workers as there are places."""

    def __init__(self, asked: Asked, told: Served, places: int, selector: selectors.BaseSelector) -> None:
        """Make the memory and listen; Unavailable if there is no room."""
        self._asked, self._told, self._selector = asked, told, selector
        self._places = list(range(places))  # that no worker has
        self._free_at = 0.0  # when the predictor had answered its last batch
        self._memory = _made(told, places)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(told.socket)
        self.listener.listen(places)
        selector.register(self.listener, selectors.EVENT_READ, self._accept)
        self.begin()

    def begin(self) -> None:
        """Forget what was measured."""
        self._batches: List[Tuple[float, int]] = []
        self._open: Dict[int, Tuple[float, float, int]] = {}  # by place: begin and end of its last batch, queries
        self._taken_s = self._hop_s = 0.0
        self._taken = 0
        self._asked.spent = [0.0] * len(PREDICTOR_PARTS)

    def seen(self) -> Seen:
        """Return what was measured."""
        for place in list(self._open):
            self._close(place)
        return Seen(self._batches, self._asked.spent, self._hop_s, self._taken_s, self._taken)

    def _accept(self, listener: socket.socket) -> None:
        link, _ = listener.accept()
        if not self._places:
            link.close()
            return
        place = self._places.pop()
        link.sendall(NUMBER.pack(place))

        def answer(link: socket.socket) -> None:
            try:
                heard = self._answer(link, place)
            except OSError:  # the worker was ended
                heard = False
            if not heard:
                self._selector.unregister(link)
                link.close()
                self._places.append(place)

        self._selector.register(link, selectors.EVENT_READ, answer)

    def _answer(self, link: socket.socket, place: int) -> bool:
        """Answer one batch; return False if the worker has hung up."""
        begin = time.perf_counter()
        got = link.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(got) < NUMBER.size:
            return False
        count: int = NUMBER.unpack(got)[0]
        self._close(place)
        handed, _ = self._times(place)
        samples, (start, middle, _) = self._asked.samples, bounds(self._told, place)
        asked = self._memory[start : start + count * self._told.query_bytes].view(samples.dtype)
        found = np.ascontiguousarray(self._asked.answers(asked.reshape((count,) + samples.shape[1:])))
        self._memory[middle : middle + count * self._told.answer_bytes] = found.reshape(-1).view(np.uint8)
        done = time.perf_counter()
        self._batches.append((done - begin, count))
        self._open[place] = (max(handed, self._free_at), done, count)
        self._free_at = done
        link.sendall(NUMBER.pack(count))
        return True

    def _close(self, place: int) -> None:
        """Add a place's last batch, whose answers its worker has taken since."""
        if place in self._open:
            begin, done, count = self._open.pop(place)
            _, taken = self._times(place)
            self._hop_s += count * (max(taken, done) - begin)
            if taken >= done:
                self._taken_s += count * taken
                self._taken += count

    def _times(self, place: int) -> Tuple[float, float]:
        start, _, _ = bounds(self._told, place)
        begin, taken = TIMES.unpack_from(self._memory.data, start - LINE)
        return begin, taken


def _made(told: Served, places: int) -> np.ndarray:
    """Make the shared memory; Unavailable if there is no room."""
    _, _, size = bounds(told, places - 1)
    with open(told.memory, "w+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise Unavailable(
                f"{size:,} bytes for queries and answers do not fit into {os.path.dirname(told.memory)}: "
                f"{error.strerror}; take a smaller batch, or give /dev/shm more room"
            )
        return np.frombuffer(mmap.mmap(file.fileno(), 0), dtype=np.uint8)
