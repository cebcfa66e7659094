"""`spark`: every attempt is an application of its own, its ranks one barrier stage."""

import os
import re
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from stagebench.cluster.gang.launcher import GangLauncher
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.launcher import Launcher
from stagebench.suite.errors import Unavailable

MASTER = "STAGEBENCH_SPARK_MASTER"
SECONDS = 5.0  # for a master to take a connection
STANDALONE = re.compile(r"spark://(?P<addresses>.+)")  # host:port, several of them between commas


class Spark(GangLauncher):
    """Named hosts must be among those that Spark takes, because Spark takes any; their order is ours."""

    name = "spark"
    title = "Spark's barrier mode"
    order = 40
    package = "pyspark"
    driver = "spark_driver.py"

    @property
    def address(self) -> str:
        """The master's address."""
        named = os.environ.get(MASTER, "")
        if not named:
            raise Unavailable(
                f"{MASTER} names no Spark cluster; set it to the master's address as spark-submit takes it "
                "(spark://host:7077, yarn)"
            )
        return named

    def check_cluster(self, placement: Placement, python: Path) -> None:
        """Unavailable without Java or a master that takes connections; executors are counted when Spark runs."""
        home = os.environ.get("JAVA_HOME")
        if not shutil.which("java", path=f"{home}/bin" if home else None):
            where = f"in JAVA_HOME ({home})" if home else "on PATH"
            raise Unavailable(
                f"there is no java {where}, which Spark runs in: apt-get install default-jre-headless, or name another "
                "with JAVA_HOME"
            )
        standalone = STANDALONE.fullmatch(self.address)
        if not standalone:
            return
        for address in standalone["addresses"].split(","):
            host, _, port = address.rpartition(":")
            with suppress(OSError, ValueError, OverflowError), socket.create_connection((host, int(port)), SECONDS):
                return
        raise Unavailable(
            f"no Spark master answers at {self.address}: start it (sbin/start-master.sh), or correct {MASTER}"
        )

    def variables(self, python: str) -> dict[str, str]:
        """Return the variables that name the tasks' Python: the driver's, unless a person has named another."""
        return {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", python), "PYSPARK_DRIVER_PYTHON": python}


@hookimpl
def stagebench_launchers() -> list[Launcher]:
    return [Spark()]
