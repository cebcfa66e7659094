"""The generator's link to a model server over HTTP/1.1: connections that are kept open, each for one query at a time.

Oldest Python: 3.6.
"""

import asyncio
import contextlib
from typing import Any, Callable, List, Optional

from stagebench.suite.worker.protocols import Query

CONNECTIONS = 64  # that are open from the start; more are opened where all are busy
CONNECT_S = 5.0  # for which a connection is waited for
HEAD_END = b"\r\n\r\n"


class HttpLink:
    """Sends queries, and hands those that are answered or have failed to `answered`."""

    def __init__(self, host: str, port: int, loop: Any, answered: Callable[[Query], None]) -> None:
        self._host, self._port, self._loop = host, port, loop
        self.answered = answered
        self._free: List[Connection] = []

    async def open(self) -> None:
        """Open connections, without an error where that fails: the queries will tell."""
        await asyncio.sleep(0.001)  # connections that the server has closed since are noticed
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            for _ in range(CONNECTIONS - len(self._free)):
                self._free.append(await self._connect())

    def ask(self, query: Query, request: bytes) -> None:
        """Send a query."""
        if self._free:
            self._free.pop().ask(query, request)
        else:
            self._loop.create_task(self._ask_anew(query, request))

    async def _ask_anew(self, query: Query, request: bytes) -> None:
        try:
            connection = await self._connect()
        except (OSError, asyncio.TimeoutError) as error:
            query.status, query.error = -1, str(error) or f"no connection within {CONNECT_S:g} s"
            self.answered(query)
            return
        if query.status == 0:  # it still waits
            connection.ask(query, request)
        else:
            self.free(connection)

    async def _connect(self) -> "Connection":
        making = self._loop.create_connection(lambda: Connection(self), self._host, self._port)
        _, made = await asyncio.wait_for(making, CONNECT_S)
        return made  # type: ignore[no-any-return]

    def free(self, connection: "Connection") -> None:
        """Keep a connection for another query."""
        self._free.append(connection)

    def forget(self, connection: "Connection") -> None:
        """Drop a connection that has nothing to do and was closed."""
        if connection in self._free:
            self._free.remove(connection)

    def close(self) -> None:
        """Close every connection."""
        for each in self._free:
            each.close()


class Connection(asyncio.Protocol):
    """A connection for one query at a time, by HTTP/1.1, kept open."""

    def __init__(self, owner: HttpLink) -> None:
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
        query.give_up = self.close
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
