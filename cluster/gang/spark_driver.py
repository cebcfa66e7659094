"""`python spark_driver.py FOLDER`, where PySpark is: all ranks of an attempt in one barrier stage, a task a node."""

from __future__ import annotations  # as in stagebench.cluster.gang.node

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

if "stagebench" not in sys.modules:  # run as a script; what is installed next to stagebench stays out
    sys.modules["stagebench"] = stagebench = ModuleType("stagebench")
    stagebench.__path__ = [str(Path(__file__).resolve().parents[2])]

from py4j.protocol import Py4JJavaError
from pyspark import BarrierTaskContext, SparkConf, SparkContext, cloudpickle

from stagebench.cluster.gang import node
from stagebench.cluster.gang.driver import main
from stagebench.cluster.gang.node import SAID, Driver, Gang, Place, hold, look, numbered

START = "sbin/start-worker.sh MASTER"
NO_SLOTS = "SPARK-24819"  # how Spark names a barrier stage that it has no room for


def work(gang: Gang, port: int) -> None:
    """Run the ranks to their end. TimeoutError: there was no room for them; RuntimeError: what failed."""
    cloudpickle.register_pickle_by_value(node)
    nodes = len(gang["ranks"])
    try:
        context = SparkContext(conf=SparkConf().setMaster(gang["address"]).setAll(settings(gang).items()))
        context.setLogLevel("ERROR")
        own = (context.getConf().get("spark.driver.host"), port)
        context.parallelize(range(nodes), nodes).barrier().mapPartitions(partial(task, gang, own)).collect()
    except Py4JJavaError as error:
        said = str(error.java_exception)
        if SAID not in said:  # Spark's own words, which name a lost executor in their second line; then comes its stack
            said = " ".join(said.partition("Driver stacktrace:")[0].split())
        if NO_SLOTS not in said:
            raise RuntimeError(said) from error
        # Spark counts its driver among the hosts that have an executor.
        known = context._jsc.sc().getExecutorMemoryStatus().keySet().mkString(" ")
        hosts = sorted(each.rpartition(":")[0] for each in known.split())
        hosts.remove(context.getConf().get("spark.driver.host"))
        there = ", ".join(hosts) or "none"
        there += f"; asked for: {', '.join(gang['hosts'])}" if gang["hosts"] else ""
        raise TimeoutError(
            f"{SAID}Spark had no {nodes} executors of {gang['cores']} cores within {gang['wait_s']:g} s "
            f"(it has {there}); ask for less, start workers on more hosts (`{START}`), or let it "
            "wait longer with STAGEBENCH_SPARK_WAIT"
        ) from error
    context.stop()


def settings(gang: Gang) -> dict[str, str]:
    """Return Spark's settings; the others are the site's (spark-defaults.conf)."""
    nodes, cores = len(gang["ranks"]), str(gang["cores"])
    return {
        "spark.app.name": "stagebench",
        # A task fills an executor: each node has an executor, and each executor one task.
        "spark.executor.cores": cores,
        "spark.task.cpus": cores,
        "spark.executor.instances": str(nodes),
        "spark.cores.max": str(nodes * gang["cores"]),
        "spark.dynamicAllocation.enabled": "false",  # which barrier mode refuses
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": f"{gang['wait_s']:.0f}",
        # A measurement that was interrupted is not continued: its lines must not precede a second one's.
        "spark.task.maxFailures": "1",
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.speculation": "false",
        # An executor whose link was cut ends, and the ranks with it; by default after ten minutes.
        "spark.network.timeout": "60s",
        "spark.executor.heartbeatInterval": "5s",
        "spark.executor.heartbeat.maxFailures": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def task(gang: Gang, driver: Driver, partition: Iterator[int]) -> Iterator[None]:
    """Be a node, in a barrier task: meet the others, then run the ranks."""
    context = BarrierTaskContext.get()
    own, hosts = context.partitionId(), [info.address.rpartition(":")[0] for info in context.getTaskInfos()]
    peer = next((host for at, host in enumerate(hosts) if at != own), "")
    gathered = map(json.loads, context.allGather(json.dumps(look(gang, peer))))
    places: list[Place] = [(host, address, port) for host, address, port in gathered]
    order = numbered(gang["hosts"], [(*place[:2], host) for place, host in zip(places, hosts, strict=True)])
    hold(gang, order.index(own), [places[at] for at in order], driver)
    return iter(())


if __name__ == "__main__":
    main("Spark", START, work)
