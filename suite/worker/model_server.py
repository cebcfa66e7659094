"""A model server in front of this process's predictor.

Three processes: the server, in an environment of its own; this one, which the server reaches through shared memory
(`suite.worker.shared_answers`), so that any framework's predictor can be behind any server; and the generator, on a
core of its own (`suite.worker.asking`). All read one clock.
"""

import contextlib
import json
import math
import mmap
import os
import selectors
import socket
import subprocess
import time
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from suite.worker.arrivals import Asked
from suite.worker.asking import PATIENCE_S, Address, Asking, end
from suite.worker.case_parts import Serving
from suite.worker.contract import Unavailable
from suite.worker.guard import descendants, guarded, lines_of
from suite.worker.job import ModelServer
from suite.worker.messages import ServerUse, Try
from suite.worker.rendezvous import free_port
from suite.worker.shared_answers import NUMBER, VARIABLE, Served, bounds

HOST = "127.0.0.1"
READY_S = 120.0  # from a server's start to its first answer
AGAIN_S, ASK_AGAIN_S = 0.05, 5.0  # between two questions to a server that is not ready; for which one is waited
SINGLE_S, TURNS = 0.25, 4  # of a turn of single queries; turns
SPARE = 4  # workers that may connect beyond those that were asked for
LAST = 5  # lines of its log


class Behind(Asking):
    """This process's predictor behind a model server."""

    def __init__(self, asked: Asked, rule: Serving, server: ModelServer, output: str) -> None:
        super().__init__(asked, rule, server)
        self._log = os.path.join(output, "model-server.log")
        self._places = list(range(rule.workers + SPARE))  # of shared memory, that no worker has
        self._spent = (0.0, 0.0)  # CPU seconds of the server, and seconds, of all tasks
        self._batches: List[Tuple[float, int]] = []  # the predictor's seconds, queries

    # --- start -----------------------------------------------------------------

    def _reach(self, folder: str, ends: contextlib.ExitStack) -> Address:
        self._listen(folder, ends)
        self._start_server(folder, ends)
        ends.callback(self._hang_up)  # before the server ends, whose workers may wait for an answer
        return Address(HOST, self._told.port, self._server.path)

    def _listen(self, folder: str, ends: contextlib.ExitStack) -> None:
        rule, asked = self._rule, self._asked
        query, answer = asked.samples[0], asked.right[0]
        self._told = Served(
            host=HOST,
            port=free_port(),
            batch=asked.predictor.setup.batch,
            max_delay_ms=rule.max_delay_ms,
            workers=rule.workers,
            socket=os.path.join(folder, "predictor"),
            memory=os.path.join(folder, "memory"),
            query_bytes=query.nbytes,
            answer_bytes=answer.nbytes,
            query_type=str(query.dtype),
            answer_type=str(answer.dtype),
            query_shape=list(query.shape),
            answer_shape=list(answer.shape),
            options=rule.options,
        )
        _, _, size = bounds(self._told, len(self._places) - 1)  # of all places
        with open(self._told.memory, "w+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                raise Unavailable(
                    f"{size:,} bytes for queries and answers do not fit into {folder}: {error.strerror}; take a "
                    "smaller batch, or give /dev/shm more room"
                )
            self._memory = np.frombuffer(mmap.mmap(file.fileno(), 0), dtype=np.uint8)
        listener = socket.socket(socket.AF_UNIX)
        ends.callback(listener.close)
        listener.bind(self._told.socket)
        listener.listen(len(self._places))
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def _start_server(self, folder: str, ends: contextlib.ExitStack) -> None:
        """Start it behind a guard, which ends whatever it leaves."""
        about = os.path.join(folder, "served.json")
        with open(about, "w") as file:
            json.dump(self._told._asdict(), file)
        environ = dict(os.environ, PYTHONPATH=self._server.bundle, **self._server.environ)
        environ[VARIABLE] = about
        self._began = time.perf_counter()
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                guarded(self._server.tokens, PATIENCE_S, PATIENCE_S),
                env=environ,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        ends.callback(end, self._process)

    def _wait_until_ready(self) -> None:
        """Wait for the first right answer; what answers a question about its health may still not answer queries."""
        while True:
            found = self._do({"due": [0.0], "hopeless_s": READY_S}, ASK_AGAIN_S)
            if found["latency_s"]:
                break
            if time.perf_counter() - self._began > READY_S:
                self._fail(f"gave no answer within {READY_S:g} s of its start")
            time.sleep(AGAIN_S)
        if found["wrong"]:
            self._fail("answered the first query wrongly")
        self._ready_s = time.perf_counter() - self._began

    # --- queries ---------------------------------------------------------------

    def capacity(self) -> float:
        """Return the most answers/s of closed loops, up to two full batches a worker, after single queries."""
        for size in self._asked.sizes:  # compiled now
            self._asked.answers(self._asked.batch(range(size)))
        own = []
        for _ in range(TURNS):
            found = self._closed_loop(1, SINGLE_S)
            own.append(float(np.median(found["latency_s"])) - self._predictor_s(np.median))
        self._alone_s = min(own) - self._delay_s()
        most = super().capacity()
        self._gap_s = self._wall_s / len(self._batches) - self._predictor_s(np.mean)
        return most

    def use(self) -> ServerUse:
        """Return what was seen of the server; after all tries."""
        processes, resident, _ = _used(self._process.pid)
        cores = self._spent[0] / max(self._spent[1], 1e-9)
        return ServerUse(
            self._server.name,
            self._server.version,
            self._loops,
            ready_s=self._ready_s,
            delay_s=self._delay_s(),
            since_arrival=self._server.since_arrival,
            alone_s=self._alone_s,
            gap_s=self._gap_s,
            processes=processes,
            resident_bytes=resident,
            cores=cores,
        )

    def _delay_s(self) -> float:
        """Return the seconds for which the oldest query of a batch waits."""
        if self._told.batch == 1:
            return 0.0
        delay = self._rule.max_delay_ms
        return (max(1.0, math.ceil(delay)) if self._server.whole_ms else delay) / 1000.0

    def _asked_for(self, task: Dict[str, Any]) -> Dict[str, Any]:
        """Run a task; ServerEnded if more queries are answered than reached the predictor."""
        self._batches = []
        _, _, before = _used(self._process.pid)
        found = super()._asked_for(task)
        _, _, after = _used(self._process.pid)
        self._wall_s = float(found["wall_s"])
        self._spent = (self._spent[0] + max(0.0, after - before), self._spent[1] + self._wall_s)
        reached, answers = sum(count for _, count in self._batches), len(found["latency_s"])
        if reached < answers:
            self._fail(f"gave {answers} answers to queries of which {reached} reached the predictor: it has a cache")
        return found

    def _predictor_s(self, mean: Callable[[List[float]], Any]) -> float:
        return float(mean([seconds for seconds, _ in self._batches]))

    def attempt(self, rate: float, due: np.ndarray) -> Try:
        """Have the generator send queries at these times."""
        found = super().attempt(rate, due)
        sizes, batch_s = [count for _, count in self._batches], [seconds for seconds, _ in self._batches]
        inference = float(np.dot(sizes, batch_s)) / max(sum(sizes), 1)
        stages = dict(found.stage_s, inference=inference, server=found.stage_s["server"] - inference)
        return found._replace(batches=sizes, batch_s=batch_s, stage_s=stages)

    def _watch(self) -> None:
        if self._process.poll() is not None:
            self._fail(f"ended with exit code {self._process.returncode}")

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
        samples, (start, middle, _) = self._asked.samples, bounds(self._told, place)
        asked = self._memory[start : start + count * self._told.query_bytes].view(samples.dtype)
        found = np.ascontiguousarray(self._asked.answers(asked.reshape((count,) + samples.shape[1:])))
        self._memory[middle : middle + count * self._told.answer_bytes] = found.reshape(-1).view(np.uint8)
        self._batches.append((time.perf_counter() - begin, count))
        link.sendall(NUMBER.pack(count))
        return True

    # --- end -------------------------------------------------------------------

    def _hang_up(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()

    def _check_gone(self) -> None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, self._told.port)) == 0:
                self._fail(f"has ended, and something still listens at its port {self._told.port}")

    def _fail(self, what: str) -> None:
        with open(self._log, errors="replace") as log:
            last = [line.strip() for line in log if line.strip()][-LAST:]
        said = "; its last lines: " + " | ".join(last) if last else ", and wrote nothing"
        super()._fail(f"{what}{said}")


def _used(pid: int) -> Tuple[int, int, float]:
    """Return the number of processes below one, their resident bytes, and the CPU seconds that they have spent."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = ["".join(lines_of(f"/proc/{each}/stat")) for each in descendants(pid)]  # "": it has ended
    fields = [each.rpartition(")")[2].split() for each in found if each]
    spent = sum(int(each[11]) + int(each[12]) for each in fields) / ticks
    return len(fields), page * sum(int(each[21]) for each in fields), spent
