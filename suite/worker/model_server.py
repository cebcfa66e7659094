"""A model server in front of this process's predictor.

Three processes: the server, in an environment of its own; this one, which the server reaches through shared memory
(`stagebench.suite.worker.shared_answers`), so that any framework's predictor can be behind any server; and the
generator, on a core of its own (`stagebench.suite.worker.asking`). All read one clock.
"""

import contextlib
import json
import math
import os
import socket
import subprocess
import time
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from stagebench.suite.worker.answering import Answering, Seen
from stagebench.suite.worker.arrivals import Asked
from stagebench.suite.worker.asking import PATIENCE_S, Address, Asking, end
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.guard import descendants, guarded, lines_of
from stagebench.suite.worker.job import ModelServer
from stagebench.suite.worker.messages import PARTS_BEHIND, ServerUse, Try
from stagebench.suite.worker.rendezvous import free_port
from stagebench.suite.worker.shared_answers import VARIABLE, Served

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
        self._host = HOST
        self._spent = (0.0, 0.0)  # CPU seconds of the server, and seconds, of all tasks

    # --- start -----------------------------------------------------------------

    def _reach(self, folder: str, ends: contextlib.ExitStack) -> Address:
        self._listen(folder, ends)
        self._start_server(folder, ends)
        ends.callback(self._hang_up)  # before the server ends, whose workers may wait for an answer
        return Address(self._host, self._told.port, self._server.path)

    def _listen(self, folder: str, ends: contextlib.ExitStack) -> None:
        rule, asked = self._rule, self._asked
        query, answer = asked.samples[0], asked.right[0]
        self._told = Served(
            host=self._host,
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
            protocol=self._server.protocol,
        )
        self._answering = Answering(asked, self._told, rule.workers + SPARE, self._selector)
        ends.callback(self._answering.listener.close)

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
                remedy = "remove what delays it, or start fewer `workers`"
                self._fail(f"gave no answer within {READY_S:g} s of its start", remedy)
            time.sleep(AGAIN_S)
        if found["wrong"]:
            self._fail("answered the first query wrongly", "correct its program or `options`, or take another server")
        self._ready_s = time.perf_counter() - self._began

    # --- queries ---------------------------------------------------------------

    def capacity(self) -> float:
        """Return the most answers/s of closed loops, up to two full batches a worker, after single queries."""
        self._compile()
        own = []
        for _ in range(TURNS):
            found = self._closed_loop(1, SINGLE_S)
            own.append(float(np.median(found["latency_s"])) - self._predictor_s(np.median))
        self._alone_s = min(own) - self._delay_s()
        most = super().capacity()
        self._gap_s = self._hosts * self._wall_s / len(self._seen.batches) - self._predictor_s(np.mean)
        return most

    def _compile(self) -> None:
        for size in self._asked.sizes:
            self._asked.answers(self._asked.batch(range(size)))

    def use(self) -> ServerUse:
        """Return what was seen of the server; after all tries."""
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
            processes=self._seen.processes,
            resident_bytes=self._seen.resident_bytes,
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
        self._begin()
        found = super()._asked_for(task)
        self._seen = seen = self._collected()
        self._wall_s = float(found["wall_s"])
        self._spent = (self._spent[0] + seen.cpu_s, self._spent[1] + self._wall_s)
        answers = len(found["latency_s"])
        if seen.queries < answers:
            problem = f"gave {answers} answers to queries of which {seen.queries} reached the predictor: it has a cache"
            self._fail(problem, "turn that off in its program or `options`, or take another server")
        return found

    def _begin(self) -> None:
        self._answering.begin()
        _, _, self._cpu_s = _used(self._process.pid)

    def _collected(self) -> Seen:
        """Return what was seen since `_begin`."""
        processes, resident, cpu_s = _used(self._process.pid)
        return self._answering.seen()._replace(
            processes=processes, resident_bytes=resident, cpu_s=max(0.0, cpu_s - self._cpu_s)
        )

    def _predictor_s(self, mean: Callable[[List[float]], Any]) -> float:
        return float(mean([seconds for seconds, _ in self._seen.batches]))

    def attempt(self, rate: float, due: np.ndarray) -> Try:
        """Have the generator send queries at these times."""
        found, batches = super().attempt(rate, due), self._seen.batches
        return found._replace(batches=[count for _, count in batches], batch_s=[seconds for seconds, _ in batches])

    def _parts(self, found: Dict[str, Any], due: np.ndarray) -> Dict[str, float]:
        latencies = found["latency_s"]
        latency_s = sum(latencies) / max(len(latencies), 1)
        parts = dict.fromkeys(PARTS_BEHIND, 0.0)
        if latencies:
            parts.update(self._seen.parts(), lag=float(np.mean(found["lag_s"])))
        taken_at = self._seen.taken_at(len(latencies)) if len(latencies) == len(due) else None
        if taken_at is not None:
            parts["back"] = found["begin_s"] + float(np.mean(due)) + latency_s - taken_at
        return dict(parts, server=latency_s - sum(parts.values()))

    def _watch(self) -> None:
        if self._process.poll() is not None:
            remedy = "remove the cause; if memory ran out, lower `batch` or `workers`"
            self._fail(f"ended with exit code {self._process.returncode}", remedy)

    # --- end -------------------------------------------------------------------

    def _hang_up(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()

    def _check_gone(self) -> None:
        with socket.socket() as probe:
            if probe.connect_ex((self._host, self._told.port)) == 0:
                problem = f"has ended, and something still listens at its port {self._told.port}"
                self._fail(problem, "end that process, which `ss -ltnp` names")

    def _fail(self, what: str, remedy: str) -> None:
        with open(self._log, errors="replace") as log:
            # Frames of Java's stack would leave no room for the line that names the cause.
            last = [line.strip() for line in log if line.strip() and not line.startswith("\tat ")][-LAST:]
        said = "its last lines: " + " | ".join(last) if last else "it wrote nothing"
        super()._fail(what, f"{remedy}; {said}")


def _used(pid: int) -> Tuple[int, int, float]:
    """Return the number of processes below one, their resident bytes, and the CPU seconds that they have spent."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = ["".join(lines_of(f"/proc/{each}/stat")) for each in descendants(pid)]  # "": it has ended
    fields = [each.rpartition(")")[2].split() for each in found if each]
    spent = sum(int(each[11]) + int(each[12]) for each in fields) / ticks
    return len(fields), page * sum(int(each[21]) for each in fields), spent
