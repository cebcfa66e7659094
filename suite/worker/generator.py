"""The generator of queries: a process of its own, on a core of its own, that asks a model server.

`main` reads tasks, lines of JSON, and answers each with a line: see `Generator`. Latency is counted from the scheduled
arrival. Requests are encoded before the first is sent. An event loop's timers count whole milliseconds, which would be
a part of every latency; `Precise` waits in microseconds.

Oldest Python: 3.6.
"""

import asyncio
import gc
import itertools
import json
import os
import select
import selectors
import sys
import time
from functools import partial
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from stagebench.suite.worker import protocols
from stagebench.suite.worker.arrivals import KEPT
from stagebench.suite.worker.common_clock import NAP
from stagebench.suite.worker.evidence import distance
from stagebench.suite.worker.grpc_link import GrpcLink
from stagebench.suite.worker.guard import prctl
from stagebench.suite.worker.http_link import HttpLink
from stagebench.suite.worker.protocols import Query

LOST = 0.01  # of the queries that were sent
REFUSALS, TIME_OUTS = (429, 503), (408, 504)  # statuses of HTTP
PR_SET_TIMERSLACK = 29
SHOWN = 120  # bytes of an answer that is none


class Target(NamedTuple):
    """The server and its queries, with the right answers."""

    host: str
    port: int
    path: str
    protocol: str
    queries: str  # a file of NumPy's: distinct samples, asked in turn
    right: str  # ... the answers to them
    bound: float  # a wrong answer is further from the right one, relative to its norm; infinity: none is compared
    core: int  # that the generator has


class Precise(selectors.EpollSelector):
    """An epoll whose waits are as exact as select(2): epoll_wait(2) has milliseconds."""

    def select(self, timeout: Optional[float] = None) -> Any:
        """Wait, in microseconds."""
        if timeout is not None and timeout > 0.0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0.0
        return super().select(timeout)


class Generator:
    """Runs tasks, each a dictionary of JSON with its result as another.

    {"due": [seconds, ...], "hopeless_s": seconds}: queries at these times after the begin, until more than LOST of
    them have waited so long; {"in_flight": number, "seconds": seconds}: a closed loop with that number under way.
    "patience_s": seconds, after the last query was sent, until the rest is given up. With "variant": number, not the
    queries in turn are sent but one, which no other number has; 0: the first one.
    """

    def __init__(self, target: Target, loop: Any) -> None:
        self._target, self._loop = target, loop
        self._right = np.load(target.right)
        self._queries = np.load(target.queries)
        host = f"[{target.host}]" if ":" in target.host else target.host
        self._encoded = partial(protocols.request, target.protocol, f"{host}:{target.port}", target.path)
        self._every = self._requests = [self._encoded(each) for each in self._queries]
        link = GrpcLink if target.protocol == protocols.GRPC else HttpLink
        self._link: Any = link(target.host, target.port, loop, self._answered)
        self._numbers = itertools.count()  # over all tasks: no answer to an old query is taken for a new one's
        self._waiting: Dict[int, Query] = {}  # by number: the oldest first
        self._closed: List[Query] = []
        self._given_up = self._room = 0
        self._more: Any = None  # what a closed loop does at an answer

    async def run(self, task: Dict[str, Any]) -> Dict[str, Any]:
        """Run a task to its end; every query that was sent is counted."""
        self._closed, self._given_up, self._room = [], 0, KEPT
        patience, variant = task.pop("patience_s"), task.pop("variant", None)
        self._requests = self._every if variant is None else [self._variant(variant)]
        await self._link.open()
        gc.collect()
        gc.disable()
        begin = time.perf_counter()
        lags = await (self._open_loop(begin, **task) if "due" in task else self._closed_loop(begin, **task))
        deadline = time.perf_counter() + patience
        while self._waiting and time.perf_counter() < deadline:
            await asyncio.sleep(0.001)
        for query in list(self._waiting.values()):
            self._give_up(query)
        gc.enable()
        last = max((query.done for query in self._closed if query.done), default=time.perf_counter())
        return dict(self._counted(), lag_s=lags, begin_s=begin, wall_s=last - begin)

    def _variant(self, number: int) -> bytes:
        rolled, at = divmod(number, len(self._queries))
        return self._encoded(np.roll(self._queries[at], rolled))

    async def _open_loop(self, begin: float, due: List[float], hopeless_s: float) -> List[float]:
        lags: List[float] = []
        for at in due:
            at += begin
            left = at - time.perf_counter()
            while left > 0.0:
                await asyncio.sleep(max(0.0, left - NAP))  # then watch the clock, reading answers
                left = at - time.perf_counter()
            lags.append(-left)
            self._send(at)
            if len(lags) % 16 == 0 or self._oldest_s() > hopeless_s:
                await asyncio.sleep(0)  # answers are read even where sending is late
            if self._oldest_s() > hopeless_s and self._hopeless(hopeless_s, len(lags)):
                break
        return lags

    def _oldest_s(self) -> float:
        """Return for how long the oldest query has waited since it was sent; 0 if none waits."""
        oldest = next(iter(self._waiting.values()), None)
        return time.perf_counter() - oldest.sent if oldest else 0.0

    def _hopeless(self, seconds: float, sent: int) -> bool:
        """Give up queries that wait too long since they were sent; return whether they are too many."""
        late = time.perf_counter() - seconds
        waiting = list(itertools.takewhile(lambda query: query.sent <= late, self._waiting.values()))
        if self._given_up + len(waiting) > max(1.0, LOST * sent):
            return True
        for query in waiting:
            self._give_up(query)
        return False

    async def _closed_loop(self, begin: float, in_flight: int, seconds: float) -> List[float]:
        def more() -> None:
            if time.perf_counter() - begin < seconds:
                self._send(time.perf_counter())

        self._more = more
        for _ in range(in_flight):
            more()
        await asyncio.sleep(seconds)
        self._more = None
        return []

    def _send(self, due: float) -> None:
        query = Query(next(self._numbers), due)
        self._waiting[query.number] = query
        self._link.ask(query, self._requests[query.number % len(self._requests)])

    def _answered(self, query: Query) -> None:
        """Take an answer, or the failure of a query."""
        query.done = time.perf_counter()
        if self._waiting.pop(query.number, None) is None:
            return  # it was given up, and is counted
        self._closed.append(query)
        self._room -= len(query.body or b"")
        if self._room < 0:  # what is not compared needs no memory
            query.seen = self._answer(query) is not None
            query.body = None
        if self._more is not None:
            self._more()

    def _give_up(self, query: Query) -> None:
        del self._waiting[query.number]
        self._given_up += 1
        query.status, query.error = TIME_OUTS[0], "nothing came back in time"
        if query.give_up is not None:
            query.give_up()
        self._closed.append(query)

    def _answer(self, query: Query) -> Optional[np.ndarray]:
        if query.body is None:
            return None
        return protocols.answer(self._target.protocol, query.fields, query.body, self._right[0])

    def _counted(self) -> Dict[str, Any]:
        """Return the latencies of answers, and counts: every query is an answer, or in exactly one of the others."""
        counts = dict.fromkeys(("wrong", "malformed", "refused", "timed_out", "failed"), 0)
        latencies, compared, trouble = [], 0, ""
        for query in sorted(self._closed, key=lambda each: each.number):
            answer = None if _kind(query) or query.seen else self._answer(query)
            kind = _kind(query) or ("" if query.seen or answer is not None else "malformed")
            if kind:
                counts[kind] += 1
                trouble = trouble or _trouble(query)
                continue
            latencies.append(query.done - query.due)
            if answer is not None and self._target.bound < np.inf and self._requests is self._every:
                compared += 1
                right = self._right[query.number % len(self._right)]
                counts["wrong"] += not distance(answer, right) <= self._target.bound
        return dict(counts, latency_s=latencies, compared=compared, trouble=trouble)

    def close(self) -> None:
        """Close every connection."""
        self._link.close()


def _kind(query: Query) -> str:
    """Return why a query has no answer; "": it may have one."""
    if query.status == 200:
        return ""
    if query.status in REFUSALS:
        return "refused"
    return "timed_out" if query.status in TIME_OUTS else "failed"


def _trouble(query: Query) -> str:
    """Return why a query has no answer, in words."""
    if query.error:
        return query.error
    body = query.body or b""
    said = repr(body[:SHOWN].decode("utf-8", "replace")) if body else "no body"
    return f"status {query.status}, {len(body):,} bytes, {said}"


def main(configuration: str) -> None:
    """Run the tasks of standard input; `configuration` is a file with a Target."""
    with open(configuration) as stream:
        target = Target(**json.load(stream))
    os.sched_setaffinity(0, [target.core])
    prctl(PR_SET_TIMERSLACK, 1)  # nanoseconds; a sleep may end 50,000 late otherwise
    loop = asyncio.SelectorEventLoop(Precise())
    asyncio.set_event_loop(loop)
    generator = Generator(target, loop)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(loop.run_until_complete(generator.run(json.loads(line)))) + "\n")
        sys.stdout.flush()
    generator.close()
    loop.close()
