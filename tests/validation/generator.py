"""Is the generator of queries punctual, and do its latencies agree with MLPerf LoadGen's?

    python tests/validation/generator.py
    python tests/validation/generator.py --realtime    # as root: before all others

A server that sends an answer at once has core 0, the generator the last one. The lag, from a query's scheduled arrival
to its sending, is bounded at 1,000 and 3,000 queries/s. With `mlcommons-loadgen` installed, its load `Server` and ours
ask a server that takes 5 ms, where the clients' own costs vanish, in turns at the same rate: medians and p99 of the
latencies agree within 5 %. Last, how many queries/s the load without a server takes where an answer costs nothing.

`--realtime` stands in for an idle machine: a busy one delays any generator.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from figures import figure, told

from stagebench.suite.worker import protocols
from stagebench.suite.worker.arrivals import Asked, InProcess
from stagebench.suite.worker.asking import GENERATE, ROOT
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.generator import Precise, Target
from stagebench.suite.worker.model_server import HOST
from stagebench.suite.worker.rendezvous import free_port
from tests.support.echo import Echo, echo

SAMPLES = np.random.RandomState(1).rand(16, 784).astype(np.float32)
ANSWER = np.arange(10, dtype=np.float32)
RATES = {1000: 0.15, 3000: 0.5}  # queries/s, and the lag's p99 in ms that is allowed
ROUNDS = 5
SECONDS = 4.0
NULL = 50_000  # queries/s in process, at least
COMPARED, TAKES_S = 200, 0.005  # queries/s, and the seconds of each
APART = 5.0  # %, at most


class Prompt(asyncio.Protocol):
    """Answers a request some seconds after it is whole."""

    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % ANSWER.nbytes + ANSWER.tobytes()

    def __init__(self, size, takes):
        self._had, self._size, self._takes = 0, size, takes

    def connection_made(self, transport):
        self._transport = transport

    def data_received(self, data):
        self._had += len(data)
        while self._had >= self._size:
            self._had -= self._size
            if self._takes:
                asyncio.get_running_loop().call_later(self._takes, self._transport.write, self.reply)
            else:
                self._transport.write(self.reply)


def request(port):
    return protocols.request("raw", f"{HOST}:{port}", "/", SAMPLES[0])


def serve(port, takes):
    async def run():
        size = len(request(port))
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Prompt(size, takes), HOST, port, backlog=1024)
        await server.serve_forever()

    asyncio.SelectorEventLoop(Precise()).run_until_complete(run())


@contextlib.contextmanager
def started(folder, takes=0.0):
    """Start server and generator; yield the server's port, and what has the generator do a task."""
    port = free_port()
    words = ["taskset", "-c", "0", sys.executable, __file__, "--serve", str(port), "--takes", str(takes)]
    server = subprocess.Popen(words)
    files = {"queries": SAMPLES, "right": np.tile(ANSWER, (len(SAMPLES), 1))}
    for name, array in files.items():
        np.save(folder / f"{name}.npy", array)
    paths = {name: str(folder / f"{name}.npy") for name in files}
    last = sorted(os.sched_getaffinity(0))[-1]
    target = Target(HOST, port, "/", "raw", bound=1e-6, core=last, **paths)
    (folder / "target.json").write_text(json.dumps(target._asdict()))
    words = [sys.executable, "-B", "-u", "-c", GENERATE, ROOT, str(folder / "target.json")]
    generator = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def do(task):
        generator.stdin.write(json.dumps(dict(task, patience_s=10.0)).encode() + b"\n")
        generator.stdin.flush()
        return json.loads(generator.stdout.readline())

    try:
        while not do({"due": [0.0], "hopeless_s": 1.0})["latency_s"]:
            time.sleep(0.1)
        yield port, do
    finally:
        for process in (server, generator):
            process.kill()
            process.wait()


def ours(do, rate, seed):
    due = np.cumsum(np.random.RandomState(seed).exponential(1.0 / rate, int(rate * SECONDS)))
    found = do({"due": due.tolist(), "hopeless_s": 10.0})
    assert len(found["latency_s"]) == found["compared"] == len(due)
    assert not found["wrong"]
    return 1e3 * np.array(found["lag_s"]), 1e3 * np.array(found["latency_s"])


def loadgen(port, rate, folder):
    """Return (median, p99) in ms by LoadGen's own load: a query is handed to one of several threads, which waits."""
    import mlperf_loadgen as lg

    waiting, ready, asked = [], threading.Semaphore(0), request(port)

    def ask():
        with socket.create_connection((HOST, port)) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while ready.acquire() and waiting:
                query = waiting.pop(0)
                link.sendall(asked)
                left = len(Prompt.reply)
                while left:
                    left -= len(link.recv(left))
                lg.QuerySamplesComplete([lg.QuerySampleResponse(query.id, 0, 0)])

    def issue(samples):
        waiting.extend(samples)
        for _ in samples:
            ready.release()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    for each in threads:
        each.start()
    settings = lg.TestSettings()
    settings.scenario, settings.mode = lg.TestScenario.Server, lg.TestMode.PerformanceOnly
    settings.server_target_qps, settings.server_target_latency_ns = rate, 10**9
    settings.min_duration_ms, settings.min_query_count = int(1000 * SECONDS), int(rate * SECONDS)
    output, log = lg.LogOutputSettings(), lg.LogSettings()
    output.outdir, output.copy_summary_to_stdout = str(folder), False
    log.log_output, log.enable_trace = output, False
    system = lg.ConstructSUT(issue, lambda: None)
    library = lg.ConstructQSL(len(SAMPLES), len(SAMPLES), lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(system, library, settings, log)
    lg.DestroyQSL(library)
    lg.DestroySUT(system)
    for _ in threads:
        ready.release()
    return figures_of((folder / "mlperf_log_summary.txt").read_text())


def figures_of(summary):
    """Return (median, p99) in ms of LoadGen's summary."""
    lines = dict(line.split(":", 1) for line in summary.splitlines() if ":" in line)
    named = {name.strip(): value.strip() for name, value in lines.items()}
    return tuple(int(named[f"{share} percentile latency (ns)"]) / 1e6 for share in ("50.00", "99.00"))


class Null(Echo):
    """Takes no time."""

    def run(self, placed):
        return placed


def null():
    """Return the queries/s of the load without a server, where an answer costs nothing."""
    inside = InProcess(Asked(echo(Null, batch=1), SAMPLES[:, :4].copy()), Serving(bound_ms=1e9))
    found = inside.attempt(1e7, np.arange(100_000) / 1e7)
    return len(found.latency_s) / found.wall_s


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--takes", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        return serve(asked.serve, asked.takes)
    if asked.realtime:  # what is started inherits it, and LoadGen is in this process
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    found = []
    with tempfile.TemporaryDirectory() as name, started(Path(name)) as (_, do):
        for rate, most in RATES.items():
            lags = [float(np.quantile(ours(do, rate, seed)[0], 0.99)) for seed in range(ROUNDS)]
            words = f"lag at {rate:,} queries/s, p99, median of {ROUNDS}"
            found.append(figure(words, float(np.median(lags)), "ms", (min(lags), max(lags)), at_most=most))
    if importlib.util.find_spec("mlperf_loadgen") is None:
        found.append(figure("LoadGen", None, why="mlcommons-loadgen is not installed here"))
    else:
        with tempfile.TemporaryDirectory() as name, started(Path(name), TAKES_S) as (port, do):
            pairs = [(ours(do, COMPARED, 10 + turn)[1], loadgen(port, COMPARED, Path(name))) for turn in range(ROUNDS)]
        for index, share in enumerate((0.5, 0.99)):
            apart = [100 * (float(np.quantile(mine, share)) / theirs[index] - 1) for mine, theirs in pairs]
            words, middle = f"latency at {COMPARED} queries/s against LoadGen's, p{100 * share:g}", np.median(apart)
            found.append(figure(words, float(middle), "%", (min(apart), max(apart)), at_least=-APART, at_most=APART))
    found.append(figure("queries/s in process, where an answer costs nothing", null(), at_least=NULL))
    for each in found:
        print({name: value for name, value in each.items() if value is not None})
    return told(found)


if __name__ == "__main__":
    sys.exit(main())
