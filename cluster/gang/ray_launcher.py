"""`ray`: every attempt is a job of its own, its ranks one placement group."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from stagebench.cluster.gang.launcher import GangLauncher, cores, gpus
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.launcher import Launcher
from stagebench.suite.errors import Unavailable
from stagebench.suite.processes.query import ask, last_words

ADDRESS = "RAY_ADDRESS"  # Ray's own
SECONDS = 60.0  # for a cluster to answer
LOOK = """
import json, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
keys = ("NodeManagerHostname", "NodeManagerAddress")
nodes = [[*map(node.get, keys), *(node["Resources"].get(kind, 0) for kind in ("CPU", "GPU"))]
         for node in ray.nodes() if node["Alive"]]
print(json.dumps(nodes))
"""


class Node(NamedTuple):
    """A node of the cluster and all that it has, in use or not."""

    host: str
    address: str
    cpus: float
    gpus: float

    @property
    def words(self) -> str:
        """The node's name in messages."""
        return f"{self.host} ({self.address}) with {self.cpus:g} CPUs and {self.gpus:g} GPUs"


class Ray(GangLauncher):
    """Takes the named hosts; without any, Ray chooses."""

    name = "ray"
    title = "Ray's placement groups"
    order = 50
    package = "ray"
    driver = "ray_driver.py"

    @property
    def address(self) -> str:
        """The address of the cluster that RAY_ADDRESS names, else of the one that runs on this host."""
        return os.environ.get(ADDRESS) or "auto"

    def check_cluster(self, placement: Placement, python: Path) -> None:
        """Unavailable without a cluster that answers and has enough large nodes; asked once a process."""
        found, problem = nodes(python, self.address)
        if problem:
            raise Unavailable(
                f"no Ray cluster answers ({problem}); start one (`ray start --head`, then on the other hosts "
                f"`ray start --address=HOST:6379`), or name it with {ADDRESS}"
            )
        wanted = f"{cores(placement)} CPUs" + (f" and {gpus(placement)} GPUs" if gpus(placement) else "")
        fit = [each for each in found if each.cpus >= cores(placement) and each.gpus >= gpus(placement)]
        there = f"it has {'; '.join(each.words for each in found)}"
        for host in placement.hosts:
            if not any(host in (each.host, each.address) for each in fit):
                raise Unavailable(f"the Ray cluster has no node {host!r} with {wanted}: {there}. Correct `hosts`")
        if len(fit) < placement.nodes:
            raise Unavailable(
                f"nodes = {placement.nodes}, ranks = {placement.ranks_per_node} want {placement.nodes} of the Ray "
                f"cluster's nodes, each with {wanted}: {there}. Ask for less, or start Ray on more hosts"
            )


@cache
def nodes(python: Path, address: str) -> tuple[list[Node], str]:
    """Return (the nodes, "") or ([], why no cluster answered)."""
    try:
        done = ask([str(python), "-c", LOOK, address], SECONDS)
        return [Node(*each) for each in json.loads(done.stdout.strip().splitlines()[-1])], ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], str(error)
    except (ValueError, IndexError, TypeError):
        return [], last_words(done)


@hookimpl
def stagebench_launchers() -> list[Launcher]:
    return [Ray()]
