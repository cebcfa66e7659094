"""A model server that runs elsewhere: it is neither started nor ended here, and asked at its address.

The predictor in it is not this process's, whose answers the server's are compared with. How many queries it answers
together, for how long, and in how much memory, is not known.
"""

import http.client
import urllib.parse
from contextlib import ExitStack, closing
from typing import Dict, List

import numpy as np

from stagebench.suite.worker.asking import PATIENCE_S, Address, Asking
from stagebench.suite.worker.contract import Unavailable
from stagebench.suite.worker.messages import ServerUse
from stagebench.suite.worker.protocols import GRPC

TURNS, PAIRS = 5, 16  # of queries; as many as are distinct, at least
CACHED = 0.9  # of a new query's latency, by the least of a turn, to which other programs add nothing


class Elsewhere(Asking):
    """A model server at the address that the case names."""

    def _reach(self, folder: str, ends: ExitStack) -> Address:
        """Return the address of queries, once the server says that it is ready; Unavailable if it does not."""
        self._asked.right = self._asked.right.astype(np.float32)  # an exported network answers in it
        parts = urllib.parse.urlsplit(self._rule.address)
        assert parts.hostname is not None  # stagebench.suite.plan.resolve has looked
        host, port, health = parts.hostname, parts.port or 80, self._server.health
        if health is not None:
            with closing(http.client.HTTPConnection(host, port, timeout=PATIENCE_S)) as connection:
                try:
                    connection.request("GET", parts.path + health)
                    status = connection.getresponse().status
                except (OSError, http.client.HTTPException) as error:
                    raise self._refusal(f"does not answer GET {parts.path + health}: {error or type(error).__name__}")
            if status != http.client.OK:
                raise self._refusal(f"answers GET {parts.path + health} with {status}")
        path = parts.path[1:] if self._server.protocol == GRPC else parts.path + self._server.path or "/"
        return Address(host, port, path)

    def _wait_until_ready(self) -> None:
        found = self._do({"due": [0.0], "hopeless_s": PATIENCE_S}, PATIENCE_S)
        if not found["latency_s"]:
            raise self._refusal(f"does not answer queries: {found['trouble']}")
        if found["wrong"]:
            raise Unavailable(
                f"the model server {self._named} answers otherwise than this framework does: it has "
                "another network, or other parameters; serve what `stagebench export-network` writes"
            )
        self._refuse_cache()

    def _refuse_cache(self) -> None:
        """Ask one query again and again, in turns with new ones: Unavailable if it always is answered sooner."""
        for turn in range(TURNS):
            seconds: Dict[bool, List[float]] = {True: [], False: []}  # by whether a query is new
            for number in range(PAIRS * (turn + 1), PAIRS * (turn + 2)):  # PAIRS: the queries themselves come first
                for variant in (number, 0):
                    task = {"due": [0.0], "hopeless_s": PATIENCE_S, "variant": variant}
                    seconds[variant > 0] += self._do(task, PATIENCE_S)["latency_s"]
            if not all(seconds.values()):
                return  # queries without an answer are counted later
            new, again = (1000.0 * min(seconds[which]) for which in (True, False))
            if again >= CACHED * new:
                return
        raise Unavailable(
            f"the model server {self._named} answers a query again in {again:.3g} ms and a new one in {new:.3g} ms, "
            "at best: it has a cache; turn that off there"
        )

    def _refusal(self, problem: str) -> Unavailable:
        return Unavailable(f"the model server {self._named} {problem}; start it there, or correct `address`")

    def use(self) -> ServerUse:
        """Return what closed loops reached; nothing else is seen from here."""
        return ServerUse(self._server.name, self._server.version, self._loops)
