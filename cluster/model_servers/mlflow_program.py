"""MLflow's scoring server in front of the predictor: run in MLflow's environment.

As a program it describes a model and starts the server, whose workers load the model from here. Arrays are JSON.
"""

import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from stagebench.suite.worker.shared_answers import Answers, served

TOLD = served()
MODEL = f"""
flavors:
  python_function:
    loader_module: stagebench.cluster.model_servers.mlflow_program
    python_version: {platform.python_version()}
"""


class Queries:
    """Hands queries to the predictor, one at a time."""

    def __init__(self) -> None:
        self._answers = Answers(TOLD)

    def predict(self, inputs: Any, params: Any = None) -> np.ndarray:
        """Return the answer to a query."""
        query = np.asarray(inputs, TOLD.query_type)
        (found,) = self._answers.of([query.reshape(-1).view(np.uint8)])
        return np.frombuffer(found, TOLD.answer_type).reshape([1, *TOLD.answer_shape])


def _load_pyfunc(path: str) -> Queries:
    """Return the model; the server calls this by its name."""
    return Queries()


if __name__ == "__main__":
    Path("model").mkdir()
    Path("model", "MLmodel").write_text(MODEL)
    # The server is Uvicorn's command by name, which reads the rest here; it would close connections that wait for 5 s.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ.update(UVICORN_TIMEOUT_KEEP_ALIVE="3600", UVICORN_LOG_LEVEL="warning")
    tokens = ["models", "serve", "--model-uri", "model", "--env-manager", "local", "--workers", str(TOLD.workers)]
    tokens += ["--host", TOLD.host, "--port", str(TOLD.port)]
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *tokens])
