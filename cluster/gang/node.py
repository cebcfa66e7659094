"""A node's part: a task of Spark's or Ray's starts and watches all ranks of its node.

It travels to the task by value, so nothing of stagebench need be installed there. Standard library only.
"""

from __future__ import annotations  # a function that travels by value takes the types of its signature along

import json
import os
import select
import socket
import subprocess
import time
from contextlib import suppress
from typing import IO, TypedDict

GUARD = "guard.py"  # in the attempt's folder: suite/worker/guard.py, under a line that proves whose folder it is
SAID = "stagebench: "  # opens the message of a task's error, which engines pass on within messages of their own
STEP = 0.1  # seconds between two looks at the ranks
REACHED = 20.0  # seconds within which the driver is to answer
LEAVE = 5.0  # seconds that a guard gets to end its program
SETTLE = 1.0  # seconds after a first bad end, in which one by a signal is noticed that explains it, here or elsewhere
SIGN, FAREWELL = b".", b"!"  # of life, from driver and task alike; before a task leaves of itself
SEEN_WITHIN = 5  # seconds: new files may take some to be seen on a network file system


class Gang(TypedDict):
    """The task of all nodes: a plain dictionary, which JSON and every engine can carry."""

    folder: str  # the attempt's, which all nodes share
    proof: str  # in the first line of GUARD there; a task's first words to the driver
    guard: list[str]  # the tokens before a program's own, which end it when this task ends
    command: list[str]  # a rank's
    environ: dict[str, str]  # of every rank and sidecar
    foreign: list[str]  # beginnings of variables that they must not inherit from the engine
    ranks: list[list[dict[str, str]]]  # by node, then by rank: the variables that say who it is
    sidecars: list[tuple[str, list[str]]]  # each one's name and its tokens, for the first node
    cores: int  # of a node that its ranks compute with
    gpus: int  # of a node
    hosts: list[str]  # one a node; empty where the engine may choose
    address: str  # of the cluster
    port: int  # free where the driver runs, 0: none is needed
    wait_s: float  # seconds that the nodes may be waited for


Place = tuple[str, str, int]  # of a node: its host's name, its address, a free port
Driver = tuple[str, int]  # the address and the port where it gives signs of life
Programs = dict[str, subprocess.Popen[bytes]]  # by rank; a sidecar by the name of its log


def look(gang: Gang, peer: str) -> Place:
    """Return the place of this task; `peer` is another node's address, "" if it is the only node.

    RuntimeError when the attempt's folder is not seen here.
    """
    path = os.path.join(gang["folder"], GUARD)
    for _ in range(SEEN_WITHIN + 1):
        with suppress(OSError), open(path) as stream:
            if gang["proof"] in stream.readline():
                break
        time.sleep(1)
    else:
        raise RuntimeError(
            f"{SAID}{socket.gethostname()} does not see {gang['folder']} of this run: name a folder that all hosts "
            "share, at the same path, with -o"
        )
    with socket.socket() as listener, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:  # most often it is free here, too
            listener.bind(("", gang["port"]))
        except OSError:
            listener.bind(("", 0))
        probe.connect((peer or "127.0.0.1", 9))  # nothing is sent
        return socket.gethostname(), probe.getsockname()[0], listener.getsockname()[1]


def numbered(hosts: list[str], names: list[tuple[str, ...]]) -> list[int]:
    """Return the tasks in the order of the named hosts, or in their own; `names` are those of each task's host.

    Spark takes any hosts: RuntimeError if one that was named is not among them.
    """
    order: list[int] = []
    for host in hosts:
        found = [at for at, called in enumerate(names) if host in called and at not in order]
        if not found:
            raise RuntimeError(
                f"{SAID}Spark took the hosts {', '.join(called[0] for called in names)}, but not {host}, "
                "which `hosts` names: start a worker there (sbin/start-worker.sh), leave `hosts` out, or name another "
                "cluster with STAGEBENCH_SPARK_MASTER"
            )
        order.append(found[0])
    return order or list(range(len(names)))


def hold(gang: Gang, number: int, places: list[Place], driver: Driver) -> None:
    """Run the ranks of node `number` until all are done, and on node 0 the sidecars until then.

    `places` are those of all nodes, in order; ranks meet on the first. RuntimeError names what failed. Then, as when
    the task is ended or the link to the driver is cut, every process that it started is ended.
    """
    (_, address, port), own = places[0], places[number]
    own_variables = {name: value for name, value in os.environ.items() if not name.startswith(tuple(gang["foreign"]))}
    shared = {**own_variables, **gang["environ"], "MASTER_ADDR": address, "MASTER_PORT": str(port)}
    ranks: Programs = {}
    servers: Programs = {}
    lifeline = reached(driver, own, gang["proof"])
    try:
        if number == 0:
            # The ranks' turn has come: `stagebench.suite.contracts.engine_messages.Begun`.
            line = {"type": "begun", "time_s": time.time(), "nodes": ", ".join(host for host, _, _ in places)}
            with open(os.path.join(gang["folder"], "engine.jsonl"), "a") as stream:
                stream.write(f"{json.dumps(line)}\n")
            for index, (_, tokens) in enumerate(gang["sidecars"], 1):
                log = f"launcher-{index}.log"
                servers[log] = started(gang, tokens, shared, log)
        for who in gang["ranks"][number]:  # their files here have what they write before they open their own logs
            rank = who["STAGEBENCH_RANK"]
            ranks[rank] = started(gang, gang["command"], {**shared, **who}, f"launcher-rank-{rank}.log")
        watch(gang, ranks, servers, lifeline)
    finally:
        with suppress(OSError):  # the driver has gone
            lifeline.send(FAREWELL)
        lifeline.close()
        end([*ranks.values(), *servers.values()])


def started(gang: Gang, tokens: list[str], variables: dict[str, str], log: str) -> subprocess.Popen[bytes]:
    """Start a program behind its guard, whose standard input is its lifeline; RuntimeError if that fails."""
    with open(os.path.join(gang["folder"], log), "wb") as output:
        try:
            return subprocess.Popen(
                [*gang["guard"], *tokens],
                env=variables,
                cwd=gang["folder"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise RuntimeError(
                f"{SAID}{socket.gethostname()} cannot start {gang['guard'][0]} ({error.strerror}): environments must "
                "lie at the same path on every host"
            ) from error


def reached(driver: Driver, own: Place, proof: str) -> socket.socket:
    """Return a connection to the driver, which was sent the proof, host and address; RuntimeError if that fails."""
    try:
        lifeline = socket.create_connection(driver, REACHED)
        lifeline.sendall(f"{proof} {own[0]} ({own[1]})\n".encode())
        return lifeline
    except OSError as error:
        raise RuntimeError(
            f"{SAID}{socket.gethostname()} cannot reach the driver at {driver[0]} port {driver[1]} "
            f"({error.strerror or error}): let the cluster's hosts connect to the one where stagebench was started"
        ) from error


def watch(gang: Gang, ranks: Programs, servers: Programs, lifeline: socket.socket) -> None:
    """Return when all ranks are done; RuntimeError when one of them, or a sidecar, ends badly before that.

    The driver's signs of life are handed on to the guards, which end their programs when none come: an engine may keep
    a task for minutes after its link was cut.
    """
    while any(rank.poll() is None for rank in ranks.values()):
        failed(gang, ranks, servers)
        if select.select([lifeline], [], [], STEP)[0]:
            heed(lifeline)
            for each in (*ranks.values(), *servers.values()):
                beat(each.stdin)
    failed(gang, ranks, {})


def heed(lifeline: socket.socket) -> None:
    """Receive the driver's signs of life and answer them; RuntimeError if it has ended."""
    with suppress(OSError):
        if lifeline.recv(64):
            lifeline.send(SIGN)
            return
    raise RuntimeError(f"{SAID}the driver has ended")


def failed(gang: Gang, ranks: Programs, servers: Programs) -> None:
    """Raise RuntimeError with the names of the ranks and sidecars that have ended badly, if any.

    A rank that misses another one may end at once, while the other one's guard still ends what that has left behind. If
    the other one is on another node, the task there must be the first that fails.
    """
    every = (*ranks.values(), *servers.values())
    if not any(each.poll() for each in every):
        return
    settled = time.monotonic() + SETTLE
    while time.monotonic() < settled and not any(interrupted(each) for each in every):
        time.sleep(STEP)
    host, names = socket.gethostname(), {f"launcher-{at}.log": name for at, (name, _) in enumerate(gang["sidecars"], 1)}
    dead = [
        ended(gang, f"rank {rank} on {host}", f"launcher-rank-{rank}.log", each.returncode)
        for rank, each in ranks.items()
        if each.poll()
    ]
    dead += [ended(gang, names[log], log, each.returncode) for log, each in servers.items() if each.poll()]
    raise RuntimeError(SAID + "; ".join(dead))


def interrupted(program: subprocess.Popen[bytes]) -> bool:
    """Return whether a signal ended it; a guard's exit code is 128 + N for signal N."""
    code = program.poll() or 0
    return code < 0 or code > 128


def beat(lifeline: IO[bytes] | None) -> None:
    """Pass on a sign of the driver's life."""
    assert lifeline is not None
    with suppress(OSError):  # the guard has ended: the next look finds out how
        lifeline.write(SIGN)
        lifeline.flush()


def ended(gang: Gang, who: str, log: str, code: int) -> str:
    """Return how a rank or a sidecar ended, on one line."""
    how = f"by signal {code - 128}" if 128 < code < 160 else f"with exit code {code}"
    with open(os.path.join(gang["folder"], log), errors="replace") as stream:
        last = stream.read().strip().rpartition("\n")[2]
    return f"{who} ended {how}" + (f": {last}" if last else "")


def end(programs: list[subprocess.Popen[bytes]]) -> None:
    """Let their guards end them, and wait for that."""
    for each in programs:
        assert each.stdin is not None
        with suppress(OSError):
            each.stdin.close()
    for each in programs:
        with suppress(subprocess.TimeoutExpired):
            each.wait(LEAVE)
