"""TorchServe in front of the predictor: run in TorchServe's environment, with Java.

As a program it writes a model without an archive and starts the server, whose workers import `handle` from here.
"""

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from stagebench.suite.worker.rendezvous import free_port
from stagebench.suite.worker.shared_answers import Answers, served

TOLD = served()
NAME = "queries"
ANSWERS: "list[Answers]" = []  # one, in a worker
TIMEOUT_S = 600  # of a query in the server: the generator gives up sooner


def handle(data: "list[dict[str, Any]] | None", context: Any) -> "list[bytes]":
    """Hand a batch to the predictor; connect to it where there is no batch yet."""
    if data is None:
        ANSWERS.append(Answers(TOLD))
        return []
    for number in range(len(data)):
        context.set_response_content_type(number, "application/octet-stream")
    return ANSWERS[0].of([each["body"] for each in data])


MANIFEST = {
    "runtime": "python",
    "model": {
        "modelName": NAME,
        "modelVersion": "1.0",
        "handler": "stagebench.cluster.model_servers.torchserve_program:handle",
        "configFile": "model.yaml",
    },
}
MODEL = {
    "minWorkers": TOLD.workers,
    "maxWorkers": TOLD.workers,
    "batchSize": TOLD.batch,
    "maxBatchDelay": max(1, math.ceil(TOLD.max_delay_ms)),  # it waits whole milliseconds; 0 would end each batch at two
    "responseTimeout": TIMEOUT_S,
}
LOG = """<Configuration status="ERROR">
<Appenders><Console name="console"><PatternLayout pattern="%p %c{1} %m%n"/></Console></Appenders>
<Loggers><Root level="error"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>"""


def settings() -> "dict[str, Any]":
    """Return the server's settings; it listens at four more ports."""
    host, limit = TOLD.host, 2 * TOLD.query_bytes + (10 << 20)
    addresses = {f"{each}_address": f"http://{host}:{free_port()}" for each in ("management", "metrics")}
    remote = {f"grpc_{each}_port": free_port() for each in ("inference", "management")}
    return {
        "inference_address": f"http://{host}:{TOLD.port}",
        **addresses,
        **remote,
        "grpc_inference_address": host,
        "grpc_management_address": host,
        "job_queue_size": 1000,  # of its usual 100, a closed loop of large batches would be refused
        "max_request_size": limit,
        "max_response_size": limit,
        "disable_system_metrics": "true",
        "vmargs": "-Xmx512m",
        **{name: value for name, value in TOLD.options.items() if name != "maxBatchDelay"},
    }


if __name__ == "__main__":
    (store := Path("store", NAME, "MAR-INF")).mkdir(parents=True)
    (store / "MANIFEST.json").write_text(json.dumps(MANIFEST))
    Path("store", NAME, "model.yaml").write_text("".join(f"{name}: {value}\n" for name, value in MODEL.items()))
    Path("server.properties").write_text("".join(f"{name}={value}\n" for name, value in settings().items()))
    Path("log.xml").write_text(LOG)
    os.environ["TEMP"] = os.environ["TMPDIR"] = os.getcwd()  # its sockets and the file with its process go there
    os.environ["LOG_LOCATION"] = os.environ["METRICS_LOCATION"] = "logs"
    tokens = ["--foreground", "--no-config-snapshots", "--disable-token-auth", "--model-store", "store"]
    tokens += ["--models", f"{NAME}={NAME}", "--ts-config", "server.properties", "--log-config", "log.xml"]
    os.execv(sys.executable, [sys.executable, "-m", "ts.model_server", *tokens])
