"""The model servers as the controller sees them."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.knobs import Knob
from stagebench.suite.contracts.model_server import ModelServer

PACKAGE = "stagebench.cluster.model_servers"
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


class Triton(ModelServer):
    """NVIDIA's server, which does not load a model whose preferred batches are none."""

    def refusal(self, batch: int, options: Mapping[str, Any]) -> str | None:
        """Return why the sizes of preferred batches cannot be."""
        sizes = options.get("preferred_batch_size", [])
        wrong = [size for size in sizes if type(size) is not int or not 0 < size <= batch]
        if not wrong:
            return None
        return f"preferred_batch_size = {sizes} has {wrong[0]!r}, and a batch has 1 to {batch} queries; leave it out"


class BentoML(ModelServer):
    """A server whose queries wait for others only where they are batched."""

    def refusal(self, batch: int, options: Mapping[str, Any]) -> str | None:
        """Return why a bound of the queue's latency has no effect."""
        if batch > 1 or "max_latency_ms" not in options:
            return None
        return f"max_latency_ms = {options['max_latency_ms']} bounds the wait for a batch of several; leave it out"


def declared(
    kind: type[ModelServer], name: str, title: str, about: str, requires: tuple[str, ...], path: str, **others: Any
) -> ModelServer:
    """Return a server whose program and environment bear its name."""
    program, remedy = f"{FOLDER}/{name}_program.py", f"stagebench env make {name}"
    others["requirements"] = f"stagebench/cluster/environments/{name}.txt"
    return kind(name, title, about, path, PACKAGE, program, requires, name, remedy, **others)


DELAY = "how long the oldest query of a batch waits for others"

TRITON = declared(
    Triton,
    "triton",
    "Triton",
    "NVIDIA's server in C++ with its Python backend; its version is that of nvidia-pytriton, which brings it.",
    ("pytriton",),
    "/v2/models/queries/infer",
    protocol="v2",
    since_arrival=True,
    options={
        "max_queue_delay_microseconds": Knob(int, 0, f"{DELAY}, in microseconds", least=0),
        "preferred_batch_size": Knob(list, [], "the sizes of batches that wait for no others"),
        "preserve_ordering": Knob(bool, False, "whether answers leave in the order of their queries"),
    },
    delay_option=("max_queue_delay_microseconds", 0.001),
)

SERVERS = [
    declared(
        BentoML,
        "bentoml",
        "BentoML",
        "A server in Python; it chooses itself how long a query waits for others. Queries are JSON.",
        ("bentoml",),
        "/answer",
        protocol="json",
        delays=False,
        options={
            "max_latency_ms": Knob(int, 600_000, "queries that would wait for longer are refused", least=1),
            "max_concurrency": Knob(int, None, "more queries at once are refused", least=1),
        },
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
        options={
            "batch_timeout": Knob((int, float), 0.0, f"{DELAY}, in seconds", least=0),
            "fast_queue": Knob(bool, False, "whether queries reach workers by ZeroMQ"),
            "num_api_servers": Knob(int, 1, "processes that take requests", least=1),
        },
        delay_option=("batch_timeout", 1000.0),
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
        options={
            "max_wait_time": Knob(int, 1, f"{DELAY}, in milliseconds", least=1),
            "capacity": Knob(int, 1024, "more queries at once are refused", least=1),
        },
        delay_option=("max_wait_time", 1.0),
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
        options={
            "maxBatchDelay": Knob(int, 1, f"{DELAY}, in milliseconds", least=1),
            "job_queue_size": Knob(int, 1000, "more queries at once are refused", least=1),
            "number_of_netty_threads": Knob(int, None, "threads that take requests", least=1),
        },
        delay_option=("maxBatchDelay", 1.0),
    ),
    TRITON,
    replace(
        TRITON,
        name="triton-grpc",
        title="Triton, over gRPC",
        help="The same server, asked over gRPC.",
        path="queries",
        protocol="v2-grpc",
    ),
    # Elsewhere, at the address that a plan gives:
    ModelServer(
        "open-inference",
        "Open Inference Protocol",
        "A server elsewhere that speaks the protocol with binary tensors, such as Triton, or KServe's.",
        "/infer",
        protocol="v2",
        health="/ready",
    ),
    ModelServer(
        "open-inference-grpc",
        "Open Inference Protocol, over gRPC",
        "A server elsewhere that speaks the protocol over gRPC; queries leave from Triton's environment.",
        "",
        requires=("grpc", "numpy"),
        environment=TRITON.environment,
        remedy=TRITON.remedy,
        protocol="v2-grpc",
    ),
    ModelServer("raw", "Raw bytes", "A server elsewhere whose queries and answers are the bytes of numbers.", ""),
    ModelServer(
        "sagemaker",
        "SageMaker container",
        "A container elsewhere that keeps SageMaker's contract; its queries are JSON.",
        "/invocations",
        protocol="json",
        health="/ping",
    ),
    ModelServer(
        "tensorflow-serving",
        "TensorFlow Serving",
        "TensorFlow's server in C++, elsewhere, by its REST API; its queries are JSON.",
        ":predict",
        protocol="json",
        health="",
    ),
]


@hookimpl
def stagebench_model_servers() -> list[ModelServer]:
    return SERVERS
