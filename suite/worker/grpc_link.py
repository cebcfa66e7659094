"""The generator's link to a model server over gRPC: one channel, with any number of queries under way.

It runs in the environment of a server that speaks gRPC, which has the library. Of its two clients `grpc.aio` is the
one that delays less: its threads need no lock of Python's.
"""

import asyncio
import contextlib
from typing import Any, Callable

from stagebench.suite.worker.protocols import Query

METHOD = "/inference.GRPCInferenceService/ModelInfer"
CONNECT_S = 5.0  # for which the channel is waited for
OPTIONS = {
    "grpc.enable_http_proxy": 0,
    "grpc.initial_reconnect_backoff_ms": 50,  # a server that is not ready yet is tried again soon
    "grpc.max_reconnect_backoff_ms": 50,
    "grpc.max_receive_message_length": -1,
}
# Statuses of HTTP, as https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto maps the codes.
STATUSES = {"RESOURCE_EXHAUSTED": 429, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504}
OTHER = 500


class GrpcLink:
    """Sends queries, and hands those that are answered or have failed to `answered`."""

    def __init__(self, host: str, port: int, loop: Any, answered: Callable[[Query], None]) -> None:
        import grpc.aio  # a server's environment has it

        self._loop, self._answered = loop, answered
        self._error = grpc.aio.AioRpcError
        self._channel = grpc.aio.insecure_channel(f"{host}:{port}", list(OPTIONS.items()))
        self._infer = self._channel.unary_unary(METHOD)

    async def open(self) -> None:
        """Connect, without an error where that fails: the queries will tell."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._channel.channel_ready(), CONNECT_S)

    def ask(self, query: Query, request: bytes) -> None:
        """Send a query."""
        call = self._infer(request)
        query.give_up = call.cancel
        self._loop.create_task(self._finish(query, call))

    async def _finish(self, query: Query, call: Any) -> None:
        try:
            body, status = await call, 200
        except self._error as error:
            code = error.code().name
            body, status = (error.details() or code).encode(), STATUSES.get(code, OTHER)
        except asyncio.CancelledError:
            return
        if query.status == 0:  # it still waits
            query.body, query.status = body, status
            self._answered(query)

    def close(self) -> None:
        """Close the channel; queries that are under way get no answer."""
        self._loop.run_until_complete(self._channel.close())
