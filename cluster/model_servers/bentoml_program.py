"""BentoML in front of the predictor: run in BentoML's environment.

As a program it starts the server, whose workers import the service from here. Arrays are JSON.
"""

import os
import sys
from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType

from stagebench.suite.worker.shared_answers import Answers, served

TOLD = served()
TIMEOUT_S = 600  # of a query in the server: the generator gives up sooner
# A batch of one is none to it. It waits as long as has paid of late; queries over `max_latency_ms` are refused.
BATCHES = {"batchable": True, "max_batch_size": TOLD.batch, "max_latency_ms": 1000 * TIMEOUT_S}
BATCHES.update({name: value for name, value in TOLD.options.items() if name in BATCHES})
TRAFFIC = {name: value for name, value in TOLD.options.items() if name not in BATCHES}


@bentoml.service(
    workers=TOLD.workers,
    traffic={"timeout": TIMEOUT_S, **TRAFFIC},
    metrics={"enabled": False},
    logging={"access": {"enabled": False}},
)
class Queries:
    """Hands batches to the predictor."""

    def __init__(self) -> None:
        self._answers = Answers(TOLD)

    @bentoml.api(**BATCHES if TOLD.batch > 1 else {})
    def answer(self, instances: Annotated[np.ndarray, DType(TOLD.query_type)]) -> np.ndarray:
        """Return the answers to queries."""
        found = self._answers.of([each.reshape(-1).view(np.uint8) for each in np.ascontiguousarray(instances)])
        return np.frombuffer(b"".join(found), TOLD.answer_type).reshape([len(found), *TOLD.answer_shape])


if __name__ == "__main__":
    os.environ["BENTOML_HOME"] = os.path.abspath("home")
    tokens = [
        "serve",
        "stagebench.cluster.model_servers.bentoml_program:Queries",
        "--host",
        TOLD.host,
        "--port",
        str(TOLD.port),
    ]
    tokens += ["--timeout-keep-alive", "3600"]  # it would close connections that wait for 5 s
    os.execv(sys.executable, [sys.executable, "-m", "bentoml", *tokens])
