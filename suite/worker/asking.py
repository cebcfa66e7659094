"""The load `server` on a model server: a generator asks it from a core of its own, wherever it runs.

`stagebench.suite.worker.model_server` starts a server in front of this process's predictor;
`stagebench.suite.worker.elsewhere` asks one at its address.
"""

import contextlib
import json
import os
import resource
import selectors
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterator, List, NamedTuple, Set, TypeVar

import numpy as np

from stagebench.suite.worker.arrivals import HOPELESS, Asked
from stagebench.suite.worker.binding import of_threads
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.generator import Target
from stagebench.suite.worker.job import ModelServer
from stagebench.suite.worker.messages import InFlight, ServerUse, Try
from stagebench.suite.worker.protocols import GRPC

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GENERATE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from stagebench.suite.worker.generator import main; main(sys.argv[2])"
)
PATIENCE_S = 10.0  # that a query is waited for, at least; and a process, to end
CLOSED_S = 0.5  # of a closed loop


class ServerEnded(Exception):
    """A model server that ended while it was asked, never was ready, or left something behind."""


class Address(NamedTuple):
    """The address that queries are sent to."""

    host: str
    port: int
    path: str


Own = TypeVar("Own", bound="Asking")


class Asking:
    """A model server, and the generator that asks it."""

    _hosts = 1  # that answer

    def __init__(self, asked: Asked, rule: Serving, server: ModelServer) -> None:
        self._asked, self._rule, self._server = asked, rule, server
        self._selector = selectors.DefaultSelector()
        self._lines: List[bytes] = []
        self._loops: List[InFlight] = []

    @contextlib.contextmanager
    def running(self: Own) -> Iterator[Own]:
        """Reach the server and start the generator, and end them; ServerEnded or Unavailable where that fails."""
        _more_files()
        folder = tempfile.mkdtemp(prefix="stagebench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        cores = sorted(
            os.sched_getaffinity(0)
        )  # the last one is the generator's; there are two (stagebench.suite.worker.main)
        try:
            with contextlib.ExitStack() as ends:
                ends.callback(_leave, _stay_on(set(cores[:-1] or cores)), cores)
                address = self._reach(folder, ends)
                self._start_generator(folder, address, cores[-1], ends)
                self._wait_until_ready()
                self._join_hosts(folder, cores[-1], ends)
                yield self
            self._check_gone()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # --- what differs ----------------------------------------------------------

    def _reach(self, folder: str, ends: contextlib.ExitStack) -> Address:
        """Return the server's address; `folder` is for files, `ends` for what must be ended."""
        raise NotImplementedError

    def _wait_until_ready(self) -> None:
        """Return once a query is answered rightly."""
        raise NotImplementedError

    def _join_hosts(self, folder: str, core: int, ends: contextlib.ExitStack) -> None:
        """Put other hosts' servers behind one address with this one, which is ready; the generator has the core."""

    def _watch(self) -> None:
        """Look whether the server still runs: ServerEnded if not. Called every second, at least."""

    def _check_gone(self) -> None:
        """Look whether a server that was started has left something: ServerEnded."""

    def use(self) -> ServerUse:
        """Return what was seen of the server; after all tries."""
        raise NotImplementedError

    def _fail(self, what: str, remedy: str) -> None:
        raise ServerEnded(f"the model server {self._named} {what}; {remedy}")

    @property
    def _named(self) -> str:
        address = self._rule.address
        return self._server.name + (f" at {address}" if address else "")

    # --- queries ---------------------------------------------------------------

    def capacity(self) -> float:
        """Return the most answers/s of closed loops, up to two full batches a worker."""
        most, queries = 2 * self._asked.predictor.setup.batch * self._rule.workers * self._hosts, 1
        while True:
            found = self._closed_loop(queries, CLOSED_S)
            answers = found["latency_s"]
            self._loops.append(InFlight(queries, len(answers) / found["wall_s"], float(np.median(answers))))
            if queries == most:
                return max(each.per_s for each in self._loops)
            queries = min(most, 2 * queries)

    def attempt(self, rate: float, due: np.ndarray) -> Try:
        """Have the generator send queries at these times."""
        found = self._asked_for({"due": due.tolist(), "hopeless_s": HOPELESS * self._rule.bound_ms / 1000.0})
        return Try(
            rate=rate,
            scheduled=len(due),
            latency_s=found["latency_s"],
            batches=[],
            batch_s=[],
            stage_s=self._parts(found, due),
            wall_s=found["wall_s"],
            compared=found["compared"],
            wrong=found["wrong"],
            malformed=found["malformed"],
            refused=found["refused"],
            timed_out=found["timed_out"],
            failed=found["failed"],
            lag_s=found["lag_s"],
        )

    def _parts(self, found: Dict[str, Any], due: np.ndarray) -> Dict[str, float]:
        """Return the parts of the mean latency, in seconds: `Try.stage_s`."""
        latencies = found["latency_s"]
        lag = float(np.mean(found["lag_s"])) if latencies else 0.0
        return {"lag": lag, "server": sum(latencies) / max(len(latencies), 1) - lag}

    def _closed_loop(self, in_flight: int, seconds: float) -> Dict[str, Any]:
        found = self._asked_for({"in_flight": in_flight, "seconds": seconds})
        if not found["latency_s"]:
            problem = f"answered none of {in_flight} queries that were sent together: {found['trouble']}"
            self._fail(problem, "correct its `options` or its program, or lower `batch` or `workers`")
        return found

    def _asked_for(self, task: Dict[str, Any]) -> Dict[str, Any]:
        return self._do(task, max(PATIENCE_S, HOPELESS * self._rule.bound_ms / 1000.0))

    # --- the generator ---------------------------------------------------------

    def _start_generator(self, folder: str, address: Address, core: int, ends: contextlib.ExitStack) -> None:
        queries, right = (os.path.join(folder, name) for name in ("queries.npy", "right.npy"))
        np.save(queries, self._asked.samples)
        np.save(right, self._asked.right)
        # Elsewhere an answer may be another network's.
        bound = self._asked.bound if self._asked.tells or self._rule.address else np.inf
        target = Target(*address, self._server.protocol, queries, right, bound, core)
        about = os.path.join(folder, "target.json")
        with open(about, "w") as file:
            json.dump(target._asdict(), file)
        python = self._server.tokens[0] if self._server.protocol == GRPC else sys.executable  # it has the library
        self._generator = subprocess.Popen(
            [python, "-B", "-u", "-c", GENERATE, ROOT, about],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._generator.stdout is not None
        self._selector.register(self._generator.stdout.fileno(), selectors.EVENT_READ, self._result)
        ends.callback(end, self._generator)

    def _end_generator(self) -> None:
        assert self._generator.stdout is not None
        self._selector.unregister(self._generator.stdout)
        end(self._generator)

    def _do(self, task: Dict[str, Any], patience_s: float) -> Dict[str, Any]:
        """Run a task of the generator; ServerEnded if the server ends."""
        assert self._generator.stdin is not None
        with contextlib.suppress(OSError):  # its end is noticed below
            self._generator.stdin.write(json.dumps(dict(task, patience_s=patience_s)).encode() + b"\n")
            self._generator.stdin.flush()
        self._lines = []
        while not (self._lines and self._lines[-1].endswith(b"\n")):
            for key, _ in self._selector.select(1.0):
                key.data(key.fileobj)
            self._watch()
        found: Dict[str, Any] = json.loads(b"".join(self._lines).decode())
        return found

    def _result(self, descriptor: int) -> None:
        line = os.read(descriptor, 1 << 20)
        if not line:
            raise RuntimeError(f"the generator of queries ended with exit code {self._generator.wait()}")
        self._lines.append(line)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Close a process's pipes and end it."""
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
    had = of_threads()
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
