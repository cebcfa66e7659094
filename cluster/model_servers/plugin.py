"""The model servers as the controller sees them."""

import os
import shutil
from pathlib import Path
from typing import Any

from suite.contracts.hooks import hookimpl
from suite.contracts.model_server import ModelServer

PACKAGE = "cluster.model_servers"
FOLDER = "cluster/model_servers"


class InJava(ModelServer):
    """A server that runs in Java."""

    def missing(self, interpreter: Path) -> str | None:
        """Return what to install where there is no Java."""
        home = os.environ.get("JAVA_HOME")
        if shutil.which("java", path=f"{home}/bin" if home else None):
            return None
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        return f"there is no java {where}: apt-get install default-jre-headless, or name another with JAVA_HOME"


def declared(
    kind: type[ModelServer], name: str, title: str, about: str, requires: tuple[str, ...], path: str, **others: Any
) -> ModelServer:
    """Return a server whose program and environment bear its name."""
    program, remedy = f"{FOLDER}/{name}_program.py", f"stagebench env make {name}"
    others["requirements"] = f"cluster/environments/{name}.txt"
    return kind(name, title, about, PACKAGE, program, requires, name, remedy, path, **others)


SERVERS = [
    declared(
        ModelServer,
        "bentoml",
        "BentoML",
        "A server in Python; it chooses itself how long a query waits for others. Queries are JSON.",
        ("bentoml",),
        "/answer",
        protocol="json",
        delays=False,
        environ={"BENTOML_DO_NOT_TRACK": "True"},
    ),
    declared(
        ModelServer,
        "kserve",
        "KServe",
        "The server of KServe's SDK, in Python; it makes no batches, which on a cluster a container next to it does.",
        ("kserve",),
        "/v2/models/queries/infer",
        protocol="v2",
        batches=False,
        delays=False,
    ),
    declared(
        ModelServer,
        "litserve",
        "LitServe",
        "A server in Python: FastAPI in front, workers in processes of their own.",
        ("litserve",),
        "/predict",
    ),
    declared(
        ModelServer,
        "mlflow",
        "MLflow",
        "MLflow's scoring server, in Python; it makes no batches. Queries are JSON.",
        ("mlflow",),
        "/invocations",
        protocol="json",
        batches=False,
        delays=False,
        environ={"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
    ),
    declared(
        ModelServer,
        "mosec",
        "Mosec",
        "A front end in Rust, workers in Python.",
        ("mosec",),
        "/inference",
        whole_ms=True,
    ),
    declared(
        InJava,
        "torchserve",
        "TorchServe",
        "PyTorch's server, no longer developed: a front end in Java, workers in Python.",
        ("ts", "torch", "yaml"),
        "/predictions/queries",
        whole_ms=True,
    ),
    declared(
        ModelServer,
        "triton",
        "Triton",
        "NVIDIA's server in C++ with its Python backend; its version is that of nvidia-pytriton, which brings it.",
        ("pytriton",),
        "/v2/models/queries/infer",
        protocol="v2",
        since_arrival=True,
    ),
]


@hookimpl
def stagebench_model_servers() -> list[ModelServer]:
    return SERVERS
