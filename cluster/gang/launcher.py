"""The common part of the launchers over Spark and Ray: the Python that has the engine's package, and its task."""

import json
import uuid
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

from stagebench.cluster.gang.driver import DEATH, NAME
from stagebench.cluster.gang.node import Gang
from stagebench.cluster.local import numbers
from stagebench.cluster.logins import far_end, write_guard
from stagebench.cluster.nodes import CheckedLauncher, queue_limit
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import FailurePatterns, Process, Request, sidecar_name
from stagebench.suite.errors import Unavailable
from stagebench.suite.processes.interpreters import command_of, survey
from stagebench.suite.processes.query import FOREIGN

ENVIRONMENT = "engines"
WAIT = 300.0  # seconds for the nodes, unless a variable says otherwise
PATIENCE = 10.0  # seconds that a driver gets to leave its cluster
# Beginnings of the engines' own variables, which no rank may see: an engine's nodes may be a job of another one.
ENGINES = ("PYSPARK_", "RAY_", "SLURM_", "SPARK_")
PATTERNS = FailurePatterns(deaths=(DEATH,), any_order=True)  # ranks that miss a killed one may be named with it


@dataclass(frozen=True)
class Package:
    """An engine's package, as `stagebench.suite.processes.interpreters` looks for the Python that has it."""

    name: str
    requires: tuple[str, ...]
    environment: str = ENVIRONMENT
    remedy: str = f"stagebench env make {ENVIRONMENT}"

    def missing(self, interpreter: Path) -> str | None:
        """Return None: only the package is looked for."""
        return None


class GangLauncher(CheckedLauncher):
    """Starts a driver of the engine, which starts a task on every node; the task starts the node's ranks.

    The attempt's folder must be on a file system that the nodes share, and the environments at the same paths there.
    """

    chooses_hosts = True
    sidecars_on_first_host = True
    environment = ENVIRONMENT
    requirements = f"stagebench/cluster/environments/{ENVIRONMENT}.txt"
    package: str  # the module that the driver imports
    driver: str  # its file, next to this one

    @property
    @abstractmethod
    def address(self) -> str:
        """The cluster's address; Unavailable if none is named."""

    @abstractmethod
    def check_cluster(self, placement: Placement, python: Path) -> None:
        """Unavailable names what the cluster lacks for a placement, with the remedy; `python` has the package."""

    def check(self, placement: Placement, interpreter: Path) -> None:
        """Raise Unavailable if no Python has the engine's package, or no cluster with enough nodes answers."""
        self.check_cluster(placement, self._python())
        self._wait()

    def start(self, request: Request) -> list[Process]:
        """Return the driver."""
        place, proof = request.placement, uuid.uuid4().hex
        per_node = range(place.ranks_per_node)
        first = (node * place.ranks_per_node for node in range(place.nodes))
        gang = Gang(
            folder=str(request.folder),
            proof=proof,
            guard=list(far_end(request)),
            command=list(request.command),
            environ=request.environ,
            foreign=[*FOREIGN, *ENGINES],
            ranks=[[numbers(start + local, place.ranks, local) for local in per_node] for start in first],
            sidecars=[(sidecar_name(tokens), list(tokens)) for tokens in request.sidecars],
            cores=cores(place),
            gpus=gpus(place),
            hosts=list(place.hosts),
            address=self.address,
            port=request.port,
            wait_s=self._wait(),
        )
        write_guard(request, proof)
        (request.folder / NAME).write_text(json.dumps(gang, indent=1))
        python, driver = str(self._python()), str(Path(__file__).with_name(self.driver))
        return [
            Process(
                (python, driver, str(request.folder)),
                self.variables(python),
                known_by=(self.name.capitalize(),),
                queues=True,
                patience=PATIENCE,
                failures=PATTERNS,
            )
        ]

    def variables(self, python: str) -> dict[str, str]:
        """Return the variables that the driver needs."""
        return {}

    def _wait(self) -> float:
        return queue_limit(f"STAGEBENCH_{self.name.upper()}_WAIT", WAIT)

    def _python(self) -> Path:
        """Return the Python that has the engine's package; Unavailable names every place that was looked at."""
        package = Package(self.name, (self.package,))
        looked_at = survey(package)
        for candidate, problem in looked_at:
            if problem is None:
                return candidate.path
        tried = "; ".join(f"{candidate.origin} ({candidate.path}) {problem}" for candidate, problem in looked_at)
        raise Unavailable(
            f"no Python has {self.package}: {tried}. Make an environment with `{command_of(package)}`, or "
            f"name a Python with STAGEBENCH_PYTHON_{self.name.upper()}"
        )


def cores(placement: Placement) -> int:
    """Return the number of cores with which the ranks of a node compute."""
    return placement.ranks_per_node * placement.threads * placement.devices


def gpus(placement: Placement) -> int:
    """Return the number of GPUs that the ranks of a node drive."""
    return 0 if placement.device == "cpu" else placement.devices_per_node
