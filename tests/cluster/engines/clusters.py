"""Clusters of two nodes, Spark's and Ray's own daemons, on this machine or on a laboratory's hosts."""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from stagebench.suite.processes.query import inherited
from stagebench.suite.worker.rendezvous import free_port

CORES = 2  # of a node
READY = 240.0  # seconds, on a busy machine


class Node(NamedTuple):
    address: str
    enter: tuple[str, ...] = ()  # the tokens by which a host of a laboratory is entered


HERE = (Node("127.0.0.1"), Node("127.0.0.1"))


@contextmanager
def spark(folder, nodes=HERE):
    """A standalone master with a worker on each node; gives the variables by which it is found."""
    home = Path(__import__("pyspark").__file__).parent
    master = f"spark://{nodes[0].address}:{free_port()}"
    start = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    with ExitStack() as running:

        def daemon(node, kind, *options):
            tokens = [*node.enter, start[0], f"{start[1]}.{kind}", "--host", node.address, "--webui-port", "0"]
            log = folder / f"{kind}-{len(os.listdir(folder))}"
            return running.enter_context(started([*tokens, *options], log, SPARK_HOME=str(home)))

        port = master.rpartition(":")[2]
        await_words(daemon(nodes[0], "master.Master", "--port", port), "I have been elected leader")
        limits = ("-c", str(CORES), "-m", "1g")
        for log in [daemon(each, "worker.Worker", *limits, "-d", str(folder / "work"), master) for each in nodes]:
            await_words(log, "Successfully registered with master")
        yield {"STAGEBENCH_SPARK_MASTER": master}


@contextmanager
def ray(folder, nodes=HERE):
    """A head and a second node; gives the variables by which it is found."""
    head, program = f"{nodes[0].address}:{free_port()}", str(Path(sys.executable).with_name("ray"))
    with ExitStack() as running:
        short = running.enter_context(tempfile.TemporaryDirectory(prefix="ray-"))  # sockets want a short path
        for number, node in enumerate(nodes):
            place = ["--address", head] if number else ["--head", "--port", head.rpartition(":")[2]]
            place += [] if number else ["--include-dashboard=false", f"--temp-dir={short}"]
            ports = (11000 + 1000 * number, 11999 + 1000 * number)  # both nodes may be on one machine
            limits = ["--num-cpus", str(CORES), "--object-store-memory=100000000"]
            limits += [f"--min-worker-port={ports[0]}", f"--max-worker-port={ports[1]}"]
            tokens = [*node.enter, program, "start", "--block", "--node-ip-address", node.address, *place, *limits]
            log = running.enter_context(started(tokens, folder / f"node-{number}", RAY_USAGE_STATS_ENABLED="0"))
            await_words(log, "Ray runtime started")
        yield {"RAY_ADDRESS": head}


@contextmanager
def started(tokens, log, **variables):
    """A daemon and all that it starts, until the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            tokens, env={**inherited(), **variables}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield log
    finally:
        family = [*psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for each in psutil.wait_procs(family, 5)[1]:
            each.kill()


def await_words(log, words):
    deadline = time.monotonic() + READY
    while words not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)
