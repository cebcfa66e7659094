"""A model server in front of this process's predictor, and the generator that asks it.

Three processes: the server, in an environment of its own; this one, which the server reaches through shared memory
(`suite.worker.shared_answers`), so that any framework's predictor can be behind any server; and the generator, on a
core of its own. All read one clock.
"""

import contextlib
import json
import math
import os
import resource
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import numpy as np

from suite.worker.answering import Answering
from suite.worker.arrivals import HOPELESS, Asked
from suite.worker.case_parts import Serving
from suite.worker.generator import Target
from suite.worker.guard import descendants, guarded, lines_of
from suite.worker.job import ModelServer
from suite.worker.messages import PARTS_BEHIND, InFlight, ServerUse, Try
from suite.worker.rendezvous import free_port
from suite.worker.shared_answers import VARIABLE, Served

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GENERATE = "import sys; sys.path.insert(0, sys.argv[1]); from suite.worker.generator import main; main(sys.argv[2])"
HOST = "127.0.0.1"
READY_S = 120.0  # from a server's start to its first answer
AGAIN_S, ASK_AGAIN_S = 0.05, 5.0  # between two questions to a server that is not ready; for which one is waited
PATIENCE_S = 10.0  # that a query is waited for, at least; and a server, to end
CLOSED_S = 0.5  # of a closed loop
SINGLE_S, TURNS = 0.25, 4  # of a turn of single queries; turns
SPARE = 4  # workers that may connect beyond those that were asked for
LAST = 5  # lines of its log


class ServerEnded(Exception):
    """A model server that ended while it was asked, never was ready, or left something behind."""


class Behind:
    """This process's predictor behind a model server."""

    def __init__(self, asked: Asked, rule: Serving, server: ModelServer, output: str) -> None:
        self._asked, self._rule, self._server = asked, rule, server
        self._log = os.path.join(output, "model-server.log")
        self._selector = selectors.DefaultSelector()
        self._spent = (0.0, 0.0)  # CPU seconds of the server, and seconds, of all tasks
        self._lines: List[bytes] = []
        self._loops: List[InFlight] = []

    @contextlib.contextmanager
    def running(self) -> "Iterator[Behind]":
        """Start server and generator, and end them; ServerEnded where that fails."""
        _more_files()
        folder = tempfile.mkdtemp(prefix="stagebench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        cores = sorted(os.sched_getaffinity(0))  # the last one is the generator's; there are two (suite.worker.main)
        try:
            with contextlib.ExitStack() as ends:
                ends.callback(_leave, _stay_on(set(cores[:-1] or cores)), cores)
                self._listen(folder, ends)
                self._start_server(folder, ends)
                ends.callback(self._hang_up)  # before the server ends, whose workers may wait for an answer
                self._start_generator(folder, cores[-1], ends)
                self._wait_until_ready()
                yield self
            self._check_gone()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # --- start -----------------------------------------------------------------

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
        ends.callback(_end, self._process)

    def _start_generator(self, folder: str, core: int, ends: contextlib.ExitStack) -> None:
        files = {"queries": self._asked.samples, "right": self._asked.right}
        for name, array in files.items():
            np.save(os.path.join(folder, name + ".npy"), array)
        paths = {name: os.path.join(folder, name + ".npy") for name in files}
        bound = self._asked.bound if self._asked.tells else np.inf
        target = Target(
            HOST,
            self._told.port,
            self._server.path,
            self._server.protocol,
            core=core,
            bound=bound,
            **paths,
        )
        about = os.path.join(folder, "target.json")
        with open(about, "w") as file:
            json.dump(target._asdict(), file)
        self._generator = subprocess.Popen(
            [sys.executable, "-B", "-u", "-c", GENERATE, ROOT, about],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._generator.stdout is not None
        self._selector.register(self._generator.stdout.fileno(), selectors.EVENT_READ, self._result)
        ends.callback(_end, self._generator)

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
        most, queries = 2 * self._told.batch * self._told.workers, 1
        while True:
            found = self._closed_loop(queries, CLOSED_S)
            answers = found["latency_s"]
            self._loops.append(InFlight(queries, len(answers) / found["wall_s"], float(np.median(answers))))
            if queries == most:
                break
            queries = min(most, 2 * queries)
        self._gap_s = float(found["wall_s"]) / len(self._answering.batches) - self._predictor_s(np.mean)
        return max(each.per_s for each in self._loops)

    def use(self) -> ServerUse:
        """Return what was seen of the server; after all tries."""
        processes, resident, _ = _used(self._process.pid)
        cores = self._spent[0] / max(self._spent[1], 1e-9)
        server, ready = self._server, self._ready_s
        model = (self._delay_s(), server.since_arrival, self._alone_s, self._gap_s)
        return ServerUse(server.name, server.version, ready, *model, self._loops, processes, resident, cores)

    def _delay_s(self) -> float:
        """Return the seconds for which the oldest query of a batch waits."""
        if self._told.batch == 1:
            return 0.0
        delay = self._rule.max_delay_ms
        return (max(1.0, math.ceil(delay)) if self._server.whole_ms else delay) / 1000.0

    def _closed_loop(self, in_flight: int, seconds: float) -> Dict[str, Any]:
        found = self._asked_for({"in_flight": in_flight, "seconds": seconds})
        if not found["latency_s"]:
            self._fail(f"answered none of {in_flight} queries that were sent together")
        return found

    def _asked_for(self, task: Dict[str, Any]) -> Dict[str, Any]:
        """Run a task; ServerEnded if more queries are answered than reached the predictor."""
        self._answering.begin()
        _, _, before = _used(self._process.pid)
        found = self._do(task, max(PATIENCE_S, HOPELESS * self._rule.bound_ms / 1000.0))
        _, _, after = _used(self._process.pid)
        self._spent = (self._spent[0] + max(0.0, after - before), self._spent[1] + found["wall_s"])
        reached, answers = sum(count for _, count in self._answering.batches), len(found["latency_s"])
        if reached < answers:
            self._fail(f"gave {answers} answers to queries of which {reached} reached the predictor: it has a cache")
        return found

    def _predictor_s(self, mean: Callable[[List[float]], Any]) -> float:
        return float(mean([seconds for seconds, _ in self._answering.batches]))

    def attempt(self, rate: float, due: np.ndarray) -> Try:
        """Have the generator send queries at these times."""
        found = self._asked_for({"due": due.tolist(), "hopeless_s": HOPELESS * self._rule.bound_ms / 1000.0})
        sizes = [count for _, count in self._answering.batches]
        batch_s = [seconds for seconds, _ in self._answering.batches]
        latencies, lags = found["latency_s"], found["lag_s"]
        latency_s = sum(latencies) / max(len(latencies), 1)
        stages = dict.fromkeys(PARTS_BEHIND, 0.0)
        if latencies:
            stages.update(self._answering.parts(), lag=float(np.mean(lags)))
        taken_at = self._answering.taken_at(len(latencies)) if len(latencies) == len(due) else None
        if taken_at is not None:
            stages["back"] = found["begin_s"] + float(np.mean(due)) + latency_s - taken_at
        stages["server"] = latency_s - sum(stages.values())
        return Try(
            rate=rate,
            scheduled=len(due),
            latency_s=latencies,
            batches=sizes,
            batch_s=batch_s,
            stage_s=stages,
            wall_s=found["wall_s"],
            compared=found["compared"],
            wrong=found["wrong"],
            malformed=found["malformed"],
            refused=found["refused"],
            timed_out=found["timed_out"],
            failed=found["failed"],
            lag_s=lags,
        )

    def _do(self, task: Dict[str, Any], patience_s: float) -> Dict[str, Any]:
        """Run a task of the generator and answer its queries; ServerEnded if the server ends."""
        assert self._generator.stdin is not None
        with contextlib.suppress(OSError):  # its end is noticed below
            self._generator.stdin.write(json.dumps(dict(task, patience_s=patience_s)).encode() + b"\n")
            self._generator.stdin.flush()
        self._lines = []
        while not (self._lines and self._lines[-1].endswith(b"\n")):
            for key, _ in self._selector.select(1.0):
                key.data(key.fileobj)
            if self._process.poll() is not None:
                self._fail(f"ended with exit code {self._process.returncode}")
        found: Dict[str, Any] = json.loads(b"".join(self._lines).decode())
        return found

    def _result(self, descriptor: int) -> None:
        line = os.read(descriptor, 1 << 20)
        if not line:
            raise RuntimeError(f"the generator of queries ended with exit code {self._generator.wait()}")
        self._lines.append(line)

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
        raise ServerEnded(f"the model server {self._server.name} {what}{said}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # it has ended
                pipe.close()
    process.terminate()
    try:
        process.wait(2.0 * PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stay_on(cores: Set[int]) -> Dict[int, Set[int]]:
    """Keep every thread of this process on these cores; return the cores that each had."""
    had = {}
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            had[int(name)] = os.sched_getaffinity(int(name))
    _set_cores({thread: (before & cores) or cores for thread, before in had.items()})
    return had


def _leave(had: Dict[int, Set[int]], cores: List[int]) -> None:
    """Give every thread the cores that it had; those that began since, all of them."""
    _set_cores({**_stay_on(set(cores)), **had})


def _set_cores(cores: Dict[int, Set[int]]) -> None:
    for thread, own in cores.items():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, own)


def _more_files() -> None:
    """Allow this process, and those that it starts, as many connections as the system does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _used(pid: int) -> Tuple[int, int, float]:
    """Return the number of processes below one, their resident bytes, and the CPU seconds that they have spent."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = ["".join(lines_of(f"/proc/{each}/stat")) for each in descendants(pid)]  # "": it has ended
    fields = [each.rpartition(")")[2].split() for each in found if each]
    spent = sum(int(each[11]) + int(each[12]) for each in fields) / ticks
    return len(fields), page * sum(int(each[21]) for each in fields), spent
