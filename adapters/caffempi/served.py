"""Asynchronous training: every rank pushes to rank 0, whose server updates at once and sends weights back.

No rank waits for another one's gradients. A rank's gradients are its batch's divided by the
number of ranks, as in synchronous training: so many updates move the weights about as far as
one of the joined batch does.

Oldest Python: 3.6.
"""

import time
from typing import Any, Dict, List, Optional

import numpy as np

from adapters.caffempi.alone import Alone, Timed
from adapters.caffempi.arena import Group
from adapters.caffempi.exchange import Exchange, Pace
from adapters.caffempi.net import Net
from adapters.caffempi.ranks import Ranks
from adapters.caffempi.server import COUNT, POLL_S, WEIGHTS, Server
from adapters.caffempi.staleness import Staleness
from suite.worker.contract import Optimiser


class Served(Alone):
    """One rank's way of training; on rank 0 the server's too."""

    def __init__(
        self, net: Net, rule: Optimiser, ranks: Ranks, groups: List[Group], pace: Pace, told: Dict[str, Any]
    ) -> None:
        """All ranks begin together; `told` are the notes of the plan."""
        super().__init__(net, rule)
        self._ranks, self._fresh, self._told = ranks, False, told
        self._staleness: Optional[Staleness] = None
        self._updates = 0
        self._server = self._push = None  # type: Any
        if ranks.rank:
            # A message a group: there is nothing to sum on the way, so nothing to cut.
            pace = pace._replace(piece=self._all.end)
            self._push = Exchange(net.arena.gradients.numpy(), groups, ranks.push, pace)
            return
        self._server = Server(net.arena, rule)
        self._server.serve(ranks.comm, [group.span for group in groups], ranks.lock)

    def step(self) -> None:
        """Groups leave as they are complete; the next forward has the weights that came back."""
        if self._server is not None:
            self._net.backward()
            self._apply()
            return
        self._net.backward(self._push.lap)
        for _ in self._push.finish():
            pass
        self._pull()

    def begin(self) -> None:
        """Not pushed yet."""
        self._fresh = True

    def communicate(self, timed: Optional[Timed]) -> None:
        """Push, update and pull. Without a new backward (pass `comm_only`) nothing but zeros is pushed."""
        if not self._fresh:
            self._arena.gradients.zero_()
        self._fresh = False
        if self._server is not None:
            self._apply()
            return
        self._push.whole(timed)
        self._pull()

    def update(self) -> None:
        """It has happened on the server."""

    def count(self) -> None:
        """Count how stale the weights are that gradients are computed with."""
        self._staleness = Staleness(self._updates)

    def notes(self) -> Dict[str, Any]:
        """Who updates, and the staleness of a training."""
        found = dict(self._told, server="on rank 0, beside its worker; gradients are divided by the global batch")
        if self._staleness is not None:
            found["staleness"] = self._staleness.notes()
        return found

    def close(self) -> None:
        """Stop serving once every rank has come here; who went before that would push to a server that has ended."""
        self._ranks.maximum(0.0)
        if self._server is not None:
            self._server.close()
        else:
            self._push.close()
        self._ranks.maximum(0.0)

    def _apply(self) -> None:
        self._server.check()
        self._noted(self._server.apply(self._arena.gradients, self._arena.parameters))

    def _pull(self) -> None:
        told, comm = np.zeros(1, np.int64), self._ranks.comm
        requests = [comm.Irecv(told, 0, COUNT), comm.Irecv(self._arena.parameters.numpy(), 0, WEIGHTS)]
        while not self._ranks.done(requests):
            time.sleep(POLL_S)
        self._noted(int(told[0]))

    def _noted(self, updates: int) -> None:
        self._updates = updates
        if self._staleness is not None:
            self._staleness.step(updates)
