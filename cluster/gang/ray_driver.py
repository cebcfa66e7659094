"""`python ray_driver.py FOLDER`, where Ray is: all ranks of an attempt in one placement group, a bundle a node."""

import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

if "stagebench" not in sys.modules:  # run as a script; what is installed next to stagebench stays out
    sys.modules["stagebench"] = stagebench = ModuleType("stagebench")
    stagebench.__path__ = [str(Path(__file__).resolve().parents[2])]

import ray
from ray import cloudpickle
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from stagebench.cluster.gang import node
from stagebench.cluster.gang.driver import main
from stagebench.cluster.gang.node import SAID, Gang

START = "ray start --address=HEAD:6379"
NAMES = ("NodeManagerHostname", "NodeManagerAddress")  # of a node, as Ray's tables have them


def work(gang: Gang, port: int) -> None:
    """Run the ranks to their end. TimeoutError: there was no room for them; RuntimeError: what failed."""
    cloudpickle.register_pickle_by_value(node)
    ray.init(address=gang["address"], log_to_driver=False, logging_level="ERROR")
    group = placement_group(bundles(gang), strategy="STRICT_SPREAD")
    deadline = time.monotonic() + gang["wait_s"]
    while not group.wait(1):
        if time.monotonic() > deadline:
            nodes, wanted = len(gang["ranks"]), f"{gang['cores']} CPUs and {gang['gpus']} GPUs"
            raise TimeoutError(
                f"{SAID}Ray had no {nodes} nodes with {wanted} free within {gang['wait_s']:g} s ({there()}); ask for "
                f"less, wait for other jobs (`ray status`), start Ray on more hosts (`{START}`), or let it wait longer "
                "with STAGEBENCH_RAY_WAIT"
            )
    hosts = addresses(group)
    peers = [next((other for other in hosts if other != host), "") for host in hosts]
    places = ray.get(on_each(gang, group, node.look, [(peer,) for peer in peers]))
    own = (ray.util.get_node_ip_address(), port)
    waiting = on_each(gang, group, node.hold, [(number, places, own) for number in range(len(hosts))])
    while waiting:
        done, waiting = ray.wait(waiting)
        ray.get(done)  # raises what a task raised
    ray.shutdown()


def bundles(gang: Gang) -> list[dict[str, float]]:
    """Return what each node must have free; every Ray node has a resource that is named after its address."""
    needs = {kind: float(count) for kind, count in (("CPU", gang["cores"]), ("GPU", gang["gpus"])) if count}
    if not gang["hosts"]:
        return [dict(needs) for _ in gang["ranks"]]
    known = {each[name]: each["NodeManagerAddress"] for each in alive() for name in NAMES}
    for host in gang["hosts"]:
        if host not in known:
            raise RuntimeError(
                f"{SAID}Ray has no node {host!r}: {there()}. Start Ray there (`{START}`) or correct `hosts`"
            )
    return [{**needs, f"node:{known[host]}": 0.001} for host in gang["hosts"]]


def alive() -> list[dict[str, Any]]:
    """Return the nodes that Ray has."""
    return [each for each in ray.nodes() if each["Alive"]]


def there() -> str:
    """Put the nodes that Ray has into words."""
    return "it has " + ", ".join("{} ({})".format(*(each[name] for name in NAMES)) for each in alive())


def addresses(group: Any) -> list[str]:
    """Return the addresses of the group's nodes, in the order of its bundles."""
    known = {each["NodeID"]: each["NodeManagerAddress"] for each in ray.nodes()}
    taken = placement_group_table(group)["bundles_to_node_id"]
    return [known[taken[number]] for number in sorted(taken)]


def on_each(gang: Gang, group: Any, function: Any, arguments: list[tuple[Any, ...]]) -> list[Any]:
    """Start a function on every node with its arguments; return the references to its results."""
    remote = ray.remote(num_cpus=gang["cores"], num_gpus=gang["gpus"], max_retries=0)(function)
    placed = [PlacementGroupSchedulingStrategy(group, bundle) for bundle in range(len(arguments))]
    return [
        remote.options(scheduling_strategy=place).remote(gang, *each)
        for place, each in zip(placed, arguments, strict=True)
    ]


if __name__ == "__main__":
    main("Ray", START, work)
