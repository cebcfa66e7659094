"""The model servers as the controller sees them."""

import os
import shutil
from pathlib import Path

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


SERVERS = [
    ModelServer(
        "bentoml",
        "BentoML",
        "A server in Python; it chooses itself how long a query waits for others. Queries are JSON.",
        PACKAGE,
        f"{FOLDER}/bentoml_program.py",
        ("bentoml",),
        "bentoml",
        "tox run -e bentoml",
        "/answer",
        protocol="json",
        delays=False,
        environ={"BENTOML_DO_NOT_TRACK": "True"},
    ),
    ModelServer(
        "kserve",
        "KServe",
        "The server of KServe's SDK, in Python; it makes no batches, which on a cluster a container next to it does.",
        PACKAGE,
        f"{FOLDER}/kserve_program.py",
        ("kserve",),
        "kserve",
        "tox run -e kserve",
        "/v2/models/queries/infer",
        protocol="v2",
        batches=False,
        delays=False,
    ),
    ModelServer(
        "litserve",
        "LitServe",
        "A server in Python: FastAPI in front, workers in processes of their own.",
        PACKAGE,
        f"{FOLDER}/litserve_program.py",
        ("litserve",),
        "litserve",
        "tox run -e litserve",
        "/predict",
    ),
    ModelServer(
        "mlflow",
        "MLflow",
        "MLflow's scoring server, in Python; it makes no batches. Queries are JSON.",
        PACKAGE,
        f"{FOLDER}/mlflow_program.py",
        ("mlflow",),
        "mlflow",
        "tox run -e mlflow",
        "/invocations",
        protocol="json",
        batches=False,
        delays=False,
        environ={"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
    ),
    ModelServer(
        "mosec",
        "Mosec",
        "A front end in Rust, workers in Python.",
        PACKAGE,
        f"{FOLDER}/mosec_program.py",
        ("mosec",),
        "mosec",
        "tox run -e mosec",
        "/inference",
        whole_ms=True,
    ),
    InJava(
        "torchserve",
        "TorchServe",
        "PyTorch's server, no longer developed: a front end in Java, workers in Python.",
        PACKAGE,
        f"{FOLDER}/torchserve_program.py",
        ("ts", "torch", "yaml"),
        "torchserve",
        "tox run -e torchserve",
        "/predictions/queries",
        whole_ms=True,
    ),
    ModelServer(
        "triton",
        "Triton",
        "NVIDIA's server in C++ with its Python backend; its version is that of nvidia-pytriton, which brings it.",
        PACKAGE,
        f"{FOLDER}/triton_program.py",
        ("pytriton",),
        "triton",
        "tox run -e triton",
        "/v2/models/queries/infer",
        protocol="v2",
        since_arrival=True,
    ),
]


@hookimpl
def stagebench_model_servers() -> list[ModelServer]:
    return SERVERS
