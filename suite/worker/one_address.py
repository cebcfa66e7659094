"""Model servers of several hosts behind one address.

Every rank starts a server in front of its own predictor, on its host, and sees it answer. Then rank 0 starts HAProxy,
whose address its generator asks. The other ranks answer what reaches their servers, and report after every task.
"""

import contextlib
import json
import os
import selectors
import socket
import subprocess
from typing import Any, List, Optional

from stagebench.suite.worker.answering import Seen
from stagebench.suite.worker.arrivals import Asked
from stagebench.suite.worker.asking import PATIENCE_S, Address, end
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.common_clock import is_one_kernel
from stagebench.suite.worker.contract import Unavailable
from stagebench.suite.worker.guard import guarded
from stagebench.suite.worker.haproxy import NO_HAPROXY, configuration, haproxy
from stagebench.suite.worker.job import ModelServer
from stagebench.suite.worker.messages import ServerUse
from stagebench.suite.worker.model_server import HOST, Behind
from stagebench.suite.worker.ranks import Outbox
from stagebench.suite.worker.rendezvous import free_port

NEXT, END = "next", "end"  # rank 0's words after a task


class OneAddress(Behind):
    """This host's predictor behind a model server; on rank 0 with the proxy and the generator."""

    def __init__(self, asked: Asked, rule: Serving, server: ModelServer, outbox: Outbox) -> None:
        super().__init__(asked, rule, server, outbox.folder)
        self._progress = outbox.progress
        self._proxy: "Optional[subprocess.Popen[bytes]]" = None
        setup, self._ranks = asked.predictor.setup, asked.predictor.group
        self._rank, self._hosts, self._host = setup.rank, setup.world, self._ranks.host
        if self._rank:
            self._log = os.path.join(outbox.folder, f"model-server-{self._rank}.log")
        self._one_clock = is_one_kernel(self._ranks.maximum)

    @property
    def _named(self) -> str:
        return f"{super()._named} on {socket.gethostname()}"

    def _join_hosts(self, folder: str, core: int, ends: contextlib.ExitStack) -> None:
        """Wait until every host's server has answered; then start the proxy, and a generator that asks it."""
        self._compile()  # while no query waits
        self._begin()
        addresses = self._exchanged(f"{self._host}:{self._told.port}")
        if self._rank:
            return
        ends.callback(self._dismiss)
        self._end_generator()
        port = self._start_proxy(folder, addresses, ends)
        self._start_generator(folder, Address(HOST, port, self._server.path), core, ends)
        self._wait_until_ready()
        self._collected()  # the queries until now, which are not counted

    def _start_proxy(self, folder: str, addresses: List[str], ends: contextlib.ExitStack) -> int:
        program, port, path = haproxy(), free_port(), os.path.join(folder, "haproxy.cfg")
        if program is None:
            raise Unavailable(NO_HAPROXY)
        with open(path, "w") as file:
            file.write(configuration(f"{HOST}:{port}", addresses))
        with open(self._log, "ab") as log:
            self._proxy = subprocess.Popen(
                guarded([program, "-db", "-f", path], PATIENCE_S, PATIENCE_S),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        ends.callback(end, self._proxy)
        return port

    # --- rank 0 ----------------------------------------------------------------

    def _collected(self) -> Seen:
        """Return what all hosts have seen; no answer's moment is known where they read several clocks."""
        self._ranks.exchange(NEXT)
        seen = [Seen(*json.loads(each)) for each in self._ranks.exchange(json.dumps(super()._collected()))]
        whole = Seen(*(sum(values[1:], values[0]) for values in zip(*seen)))
        whole = whole._replace(spent=[sum(seconds) for seconds in zip(*(each.spent for each in seen))])
        return whole if self._one_clock else whole._replace(taken=0)

    def use(self) -> ServerUse:
        """Return what was seen of all hosts' servers; a model of one queue has no use for the rest."""
        return super().use()._replace(alone_s=None, gap_s=None)

    def _watch(self) -> None:
        super()._watch()
        if self._proxy is not None and self._proxy.poll() is not None:
            problem = f"is behind HAProxy, which ended with exit code {self._proxy.returncode}"
            self._fail(problem, "remove the cause, or use nodes = 1")

    def _dismiss(self) -> None:
        with contextlib.suppress(OSError):  # a rank has ended
            self._ranks.exchange(END)

    # --- the other ranks -------------------------------------------------------

    def answer(self) -> None:
        """Answer what reaches this host's server, until rank 0 has asked all."""
        while self._exchanged("")[0] != END:
            seen = json.dumps(Behind._collected(self))
            self._begin()  # before rank 0 asks again
            self._exchanged(seen)

    def _exchanged(self, value: str) -> List[str]:
        """Exchange values; answer until rank 0's has come."""
        found: List[str] = self._ranks.exchange(value, self._answer_until)
        return found

    def _answer_until(self, readable: socket.socket) -> None:
        heard: List[Any] = []
        self._selector.register(readable, selectors.EVENT_READ, heard.append)
        while not heard:
            for key, _ in self._selector.select(1.0):
                key.data(key.fileobj)
            self._watch()
            self._progress(name="server", phase="measure", step=1, of=1)
        self._selector.unregister(readable)
