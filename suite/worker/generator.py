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
from suite.worker.arrivals import KEPT
from suite.worker.common_clock import NAP
from suite.worker.evidence import distance
from suite.worker.guard import prctl

CONNECTIONS = 64  # that are open from the start; more are opened where all are busy
CONNECT_S = 5.0  # for which a connection is waited for
LOST = 0.01  # of the queries that were sent
REFUSALS, TIME_OUTS = (429, 503), (408, 504)  # statuses of HTTP
PR_SET_TIMERSLACK = 29
HEAD_END = b"\r\n\r\n"
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


class Query:
    """A query, from its scheduled arrival to its answer or failure."""

    __slots__ = ("body", "connection", "done", "due", "error", "fields", "number", "seen", "sent", "status")

    def __init__(self, number: int, due: float) -> None:
        self.number, self.due, self.sent = number, due, time.perf_counter()
        self.done = 0.0
        self.status = 0  # of HTTP; 0: no answer; -1: its connection broke
        self.error = ""  # why it broke
        self.fields: Dict[str, str] = {}
        self.body: Optional[bytes] = None
        self.seen = False  # whether the body was an answer, and is no longer kept
        self.connection: Optional[Connection] = None


class Connection(asyncio.Protocol):
    """A connection for one query at a time, by HTTP/1.1, kept open."""

    def __init__(self, owner: "Generator") -> None:
        self._owner = owner
        self._query: Optional[Query] = None
        self._lines: Optional[List[str]] = None  # of the answer's head, once it is there
        self._body = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Keep the way to the server."""
        self._transport = transport

    def ask(self, query: Query, request: bytes) -> None:
        """Send a query."""
        self._query = query
        query.connection = self
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Read until the answer is complete; an answer that is no HTTP is malformed."""
        if self._query is None:  # nothing was asked
            self._owner.forget(self)
            self.close()
            return
        self._body += data
        if self._lines is None:
            head, end, rest = bytes(self._body).partition(HEAD_END)
            if not end:
                return
            self._lines, self._body = head.decode("latin-1").lower().split("\r\n"), bytearray(rest)
        try:
            self._answered(self._query)
        except (ValueError, IndexError):
            self._query.status = 200  # without a body: malformed
            self._leave(self._query, open_still=False)

    def _answered(self, query: Query) -> None:
        assert self._lines is not None
        fields = {name: value.strip() for name, _, value in (line.partition(":") for line in self._lines[1:])}
        chunked = fields.get("transfer-encoding") == "chunked"
        body = _joined(bytes(self._body)) if chunked else bytes(self._body)
        size = int(fields.get("content-length", "0"))
        if body is None or len(body) < size:
            return
        version, status = self._lines[0].split()[:2]
        query.status, query.fields, query.body = int(status), fields, body
        wish = fields.get("connection")
        keeps = wish == "keep-alive" if version == "http/1.0" else wish != "close"
        self._leave(query, keeps and (chunked or "content-length" in fields))

    def _leave(self, query: Query, open_still: bool) -> None:
        self._query, self._lines, self._body = None, None, bytearray()
        self._owner.answered(query)
        if open_still:
            self._owner.free(self)
        else:
            self.close()

    def connection_lost(self, error: Optional[Exception]) -> None:
        """Report a broken connection, by the query if one was under way."""
        if self._query is None:
            self._owner.forget(self)
        else:
            self._query.status, self._query.error = -1, str(error or "the server closed the connection")
            self._owner.answered(self._query)

    def close(self) -> None:
        """Close at once; a query that is under way gets no answer."""
        self._query = None
        self._transport.abort()


class Generator:
    """Runs tasks, each a dictionary of JSON with its result as another.

    {"due": [seconds, ...], "hopeless_s": seconds}: queries at these times after the begin, until more than LOST of
    them have waited so long; {"in_flight": number, "seconds": seconds}: a closed loop with that number under way.
    "patience_s": seconds, after the last query was sent, until the rest is given up.
    """

    def __init__(self, target: Target, loop: Any) -> None:
        self._target, self._loop = target, loop
        self._right = np.load(target.right)
        queries = np.load(target.queries)
        host = f"[{target.host}]" if ":" in target.host else target.host
        host = f"{host}:{target.port}"
        self._requests = [protocols.request(target.protocol, host, target.path, each) for each in queries]
        self._free: List[Connection] = []
        self._numbers = itertools.count()  # over all tasks: no answer to an old query is taken for a new one's
        self._waiting: Dict[int, Query] = {}  # by number: the oldest first
        self._closed: List[Query] = []
        self._given_up = self._room = 0
        self._more: Any = None  # what a closed loop does at an answer

    async def run(self, task: Dict[str, Any]) -> Dict[str, Any]:
        """Run a task to its end; every query that was sent is counted."""
        self._closed, self._given_up, self._room = [], 0, KEPT
        patience = task.pop("patience_s")
        await asyncio.sleep(0.001)  # connections that the server has closed since are noticed
        with contextlib.suppress(OSError, asyncio.TimeoutError):  # the queries will tell
            for _ in range(CONNECTIONS - len(self._free)):
                self._free.append(await self._connect())
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
        if self._free:
            self._free.pop().ask(query, self._request(query))
        else:
            self._loop.create_task(self._send_anew(query))

    async def _send_anew(self, query: Query) -> None:
        try:
            connection = await self._connect()
        except (OSError, asyncio.TimeoutError) as error:
            query.status, query.error = -1, str(error) or f"no connection within {CONNECT_S:g} s"
            self.answered(query)
            return
        if self._waiting.get(query.number) is query:
            connection.ask(query, self._request(query))
        else:
            self.free(connection)

    def _request(self, query: Query) -> bytes:
        return self._requests[query.number % len(self._requests)]

    async def _connect(self) -> Connection:
        target = self._target
        making = self._loop.create_connection(lambda: Connection(self), target.host, target.port)
        _, made = await asyncio.wait_for(making, CONNECT_S)
        return made  # type: ignore[no-any-return]

    def free(self, connection: Connection) -> None:
        """Keep a connection for another query."""
        self._free.append(connection)

    def forget(self, connection: Connection) -> None:
        """Drop a connection that has nothing to do and was closed."""
        if connection in self._free:
            self._free.remove(connection)

    def answered(self, query: Query) -> None:
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
        if query.connection is not None:
            query.connection.close()
        query.status, query.error = TIME_OUTS[0], "nothing came back in time"
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
            if answer is not None and self._target.bound < np.inf:
                compared += 1
                right = self._right[query.number % len(self._right)]
                counts["wrong"] += not distance(answer, right) <= self._target.bound
        return dict(counts, latency_s=latencies, compared=compared, trouble=trouble)

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
        if size < 0:
            raise ValueError(f"a chunk of {size} bytes")
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
