"""The contract of a model server's plugin: what stagebench must know to start it, to ask it and to end it.

The predictor is not in the process of a server that is started: the server's program hands the bytes of queries to it
(`stagebench.suite.worker.shared_answers`). So any framework's predictor can be behind any server, whose environment
needs no framework. A server without a program runs elsewhere, with a predictor of its own, at an address that plans
give.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stagebench.suite.contracts.deep import DEEP
from stagebench.suite.contracts.knobs import Knob


@dataclass(frozen=True)
class ModelServer:
    """A program that answers queries. A plugin returns one instance from `stagebench_model_servers`.

    Queries are requests POST to `path`, in a protocol of `stagebench.suite.worker.protocols`; over gRPC, of the model
    that `path` names, and the generator of queries runs in the server's environment, which has `grpcio`. The program
    reads `stagebench.suite.worker.shared_answers.served()`, listens where that says, and answers by `Answers.of`. It is
    ended by SIGTERM to all of its processes. Without a program, `path` and `health` continue the address that a plan
    gives.
    """

    __pydantic_config__ = DEEP

    name: str  # in plans and records: no two model servers have one name
    title: str
    help: str  # a sentence: what it is
    path: str  # of its address: "/inference"
    package: str = ""  # of the code that runs in its environment
    program: str = ""  # the file of that package that is run: "cluster/model_servers/mosec_program.py"
    requires: tuple[str, ...] = ()  # the modules that its environment must have, its own first
    environment: str | None = None  # its environment's name
    remedy: str = ""  # the command that makes it
    requirements: str = ""  # the file of its environment's packages, as an adapter's
    protocol: str = "raw"  # one of stagebench.suite.worker.protocols
    batches: bool = True  # False: it answers queries one at a time
    delays: bool = True  # False: it decides itself how long a query waits for others; `max_delay_ms` is nothing to it
    whole_ms: bool = False  # True: `max_delay_ms` is rounded up to whole milliseconds, one at least
    since_arrival: bool = False  # whether the delay counts from a query's arrival; False: from when a worker takes it
    health: str | None = None  # of a server elsewhere: GET answers 200 there once it is ready
    options: dict[str, Knob] = field(default_factory=dict)  # its own, by their names; in `Served.options` if given
    delay_option: tuple[str, float] = ("", 1.0)  # the one that is `max_delay_ms` by another name, and its milliseconds
    environ: dict[str, str] = field(default_factory=dict)  # variables, such as those that turn off telemetry
    builds_on: tuple[
        str, ...
    ] = ()  # further packages that the program imports, but for NumPy and `stagebench.suite.worker`

    def missing(self, interpreter: Path) -> str | None:
        """Return what this machine lacks beyond Python modules, with the remedy; None: nothing."""
        return None

    def refusal(self, batch: int, options: Mapping[str, Any]) -> str | None:
        """Return why the server cannot keep options with batches of at most `batch`, with the remedy; None: it can."""
        return None


INPROCESS = "inprocess"
