"""The generator of queries: a process of its own, on a core of its own, that asks a model server over HTTP.

`main` reads tasks, lines of JSON, and answers each with a line: see `Generator`. Latency is counted from the scheduled
arrival. Requests are encoded before the first is sent. An event loop's timers count whole milliseconds, which would be
a part of every latency; `Precise` waits in microseconds.

Oldest Python: 3.6.
"""

import asyncio
import contextlib
import gc
import itertools
import json
import os
import select
import selectors
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from suite.worker import protocols
from suite.worker.evidence import distance
from suite.worker.guard import prctl

CONNECTIONS = 64  # that are open from the start; more are opened where all are busy
HELD = 256 << 20  # bytes of the first answers of a try, which are compared after it
REFUSALS, TIME_OUTS = (429, 503), (408, 504)  # statuses of HTTP
PR_SET_TIMERSLACK = 29
HEAD_END = b"\r\n\r\n"


class Target(NamedTuple):
    """The server and its queries, with the right answers."""

    host: str
    port: int
    path: str
    protocol: str
    queries: str  # a file of NumPy's: distinct samples, asked in turn
    right: str  # ... the answers to them
    bound: float  # a wrong answer is further from the right one, relative to its norm
    core: int  # that the generator has
    timeout_s: float  # of a query, from its scheduled arrival


class Precise(selectors.EpollSelector):
    """An epoll whose short waits are as exact as select(2): epoll_wait(2) has milliseconds."""

    def select(self, timeout: Optional[float] = None) -> Any:
        """Wait, in microseconds where the wait is short."""
        if timeout is not None and 0.0 < timeout < 0.05:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0.0
        return super().select(timeout)


class Query:
    """A query, from its scheduled arrival to its answer or failure."""

    __slots__ = ("body", "done", "due", "fields", "number", "status")

    def __init__(self, number: int, due: float) -> None:
        self.number, self.due = number, due
        self.done = 0.0
        self.status = 0  # of HTTP; 0: no answer; -1: its connection broke
        self.fields: List[str] = []
        self.body = b""


class Connection(asyncio.Protocol):
    """A connection for one query at a time, by HTTP/1.1, kept open."""

    def __init__(self, owner: "Generator") -> None:
        self._owner = owner
        self.query: Optional[Query] = None
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Keep the way to the server."""
        self._transport = transport

    def ask(self, query: Query, request: bytes) -> None:
        """Send a query."""
        self.query = query
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Read on, until the answer is whole."""
        self._buffer += data
        head, end, rest = self._buffer.partition(HEAD_END)
        if not end or self.query is None:
            return
        fields = head.decode("latin-1").lower().split("\r\n")
        sizes = [int(each.partition(":")[2]) for each in fields if each.startswith("content-length:")]
        chunks = "transfer-encoding: chunked" in fields
        body = _joined(rest) if chunks else rest
        if body is None or (sizes and len(body) < sizes[0]):
            return
        query, self.query, self._buffer = self.query, None, b""
        query.status, query.fields, query.body = int(fields[0].split()[1]), fields[1:], body
        self._owner.answered(query, self, open_still=bool(sizes or chunks) and "connection: close" not in fields)

    def connection_lost(self, error: Optional[Exception]) -> None:
        """Tell the owner, by the query if one was under way."""
        if self.query is None:
            self._owner.forget(self)
        else:
            self.query.status = -1
            self._owner.answered(self.query, self, open_still=False)

    def close(self) -> None:
        """Close at once."""
        self.query = None
        self._transport.abort()


class Generator:
    """Runs tasks, each a dictionary of JSON with its result as another.

    {"due": [seconds, ...], "hopeless_s": seconds}: queries at these times after the begin, until the oldest one that
    waits has waited so long; {"in_flight": number, "seconds": seconds}: a closed loop with that number under way;
    "same": true has them all ask for one sample.
    """

    def __init__(self, target: Target, loop: Any) -> None:
        self._target, self._loop = target, loop
        self._right = np.load(target.right)
        queries = np.load(target.queries)
        self._requests = [protocols.request(target.protocol, target.host, target.path, each) for each in queries]
        self._free: List[Connection] = []
        self._waiting: Dict[int, Query] = {}  # by number: the oldest first
        self._closed: List[Query] = []
        self._room = 0
        self._more: Any = None  # what a closed loop does at an answer

    async def run(self, task: Dict[str, Any]) -> Dict[str, Any]:
        """Run a task to its end; every query that was sent is counted."""
        self._closed, self._room = [], HELD
        with contextlib.suppress(OSError):  # the queries will tell
            for _ in range(CONNECTIONS - len(self._free)):
                self._free.append(await self._connect())
        gc.collect()
        gc.disable()
        begin = time.perf_counter()
        lags = await (self._open_loop(begin, **task) if "due" in task else self._closed_loop(begin, **task))
        deadline = time.perf_counter() + self._target.timeout_s
        while self._waiting and time.perf_counter() < deadline:
            await asyncio.sleep(0.001)
        wall = time.perf_counter() - begin
        gc.enable()
        for query in list(self._waiting.values()):
            query.status = 408  # here, the generator's own patience
            self._closed.append(query)
        self._waiting.clear()
        return dict(self._told(), lag_s=lags, begin_s=begin, wall_s=wall)

    async def _open_loop(self, begin: float, due: List[float], hopeless_s: float) -> List[float]:
        lags: List[float] = []
        for number, at in enumerate(due):
            at += begin
            left = at - time.perf_counter()
            while left > 0.0:
                await asyncio.sleep(left)
                left = at - time.perf_counter()
            lags.append(-left)
            self._send(Query(number, at))
            oldest = next(iter(self._waiting.values()), None)
            if oldest is not None and time.perf_counter() - oldest.due > hopeless_s:
                break
            if len(lags) % 16 == 0:
                await asyncio.sleep(0)  # answers are read even where sending is late
        return lags

    async def _closed_loop(self, begin: float, in_flight: int, seconds: float, same: bool = False) -> List[float]:
        numbers = itertools.count(0, len(self._requests) if same else 1)

        def more() -> None:
            if time.perf_counter() - begin < seconds:
                self._send(Query(next(numbers), time.perf_counter()))

        self._more = more
        for _ in range(in_flight):
            more()
        await asyncio.sleep(seconds)
        self._more = None
        return []

    def _send(self, query: Query) -> None:
        self._waiting[query.number] = query
        if self._free:
            self._free.pop().ask(query, self._request(query))
        else:
            self._loop.create_task(self._send_anew(query))

    async def _send_anew(self, query: Query) -> None:
        try:
            connection = await self._connect()
        except OSError:
            query.status = -1
            self.answered(query, None, open_still=False)
            return
        connection.ask(query, self._request(query))

    def _request(self, query: Query) -> bytes:
        return self._requests[query.number % len(self._requests)]

    async def _connect(self) -> Connection:
        target = self._target
        _, made = await self._loop.create_connection(lambda: Connection(self), target.host, target.port)
        return made  # type: ignore[no-any-return]

    def forget(self, connection: Connection) -> None:
        """Take note that the server closed a connection that had nothing to do."""
        if connection in self._free:
            self._free.remove(connection)

    def answered(self, query: Query, connection: Optional[Connection], open_still: bool) -> None:
        """Take what became of a query."""
        query.done = time.perf_counter()
        if connection is not None and open_still:
            self._free.append(connection)
        if self._waiting.pop(query.number, None) is None:
            return  # too late: it has been counted
        self._closed.append(query)
        if self._more is not None:
            self._more()

    def _told(self) -> Dict[str, Any]:
        """Return what became of the queries, by number; every one is in exactly one of the counts."""
        counts = dict.fromkeys(("wrong", "malformed", "refused", "timed_out", "failed"), 0)
        latencies, compared = [], 0
        for query in sorted(self._closed, key=lambda each: each.number):
            right = self._right[query.number % len(self._right)]
            kind, answer = _kind(query), None
            if not kind:
                fields = dict(field.split(": ", 1) for field in query.fields if ": " in field)
                answer = protocols.answer(self._target.protocol, fields, query.body, right)
            if answer is None:
                counts[kind or "malformed"] += 1
                continue
            latencies.append(query.done - query.due)
            self._room -= len(query.body)
            if self._room >= 0:
                compared += 1
                counts["wrong"] += not distance(answer, right) <= self._target.bound
        return dict(counts, latency_s=latencies, compared=compared)

    def close(self) -> None:
        """Close every connection."""
        for each in self._free:
            each.close()


def _joined(chunks: bytes) -> Optional[bytes]:
    """Return the body that chunks make (RFC 9112, section 7.1), without trailers; None if one is still to come."""
    parts: List[bytes] = []
    begin = 0
    while True:
        line = chunks.find(b"\r\n", begin)
        if line < 0:
            return None
        size = int(chunks[begin:line].partition(b";")[0], 16)
        begin = line + 2 + size + 2
        if len(chunks) < begin:
            return None
        if size == 0:
            return b"".join(parts)
        parts.append(chunks[line + 2 : begin - 2])


def _kind(query: Query) -> str:
    """Return why a query has no answer; "": it may have one."""
    if query.status == 200:
        return ""
    if query.status in REFUSALS:
        return "refused"
    return "timed_out" if query.status in TIME_OUTS else "failed"


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
