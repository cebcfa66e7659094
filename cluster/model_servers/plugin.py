"""The model servers as the controller sees them."""

from suite.contracts.hooks import hookimpl
from suite.contracts.model_server import ModelServer

PACKAGE = "cluster.model_servers"
FOLDER = "cluster/model_servers"

SERVERS = [
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
