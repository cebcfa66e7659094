"""Mosec in front of the predictor: run in mosec's environment.

Its options are read from the command line. A batch of one is handed over as it is, not as a list.
"""

import math
import sys

from mosec import Server, ValidationError, Worker

from stagebench.suite.worker.shared_answers import Answers, served

TOLD = served()
TIMEOUT_S = 600  # of a query in the server: the generator gives up sooner


class Predictor(Worker):
    """Hands batches to the predictor."""

    resp_mime_type = "application/octet-stream"

    def __init__(self) -> None:
        self._answers = Answers(TOLD)

    def deserialize(self, data: bytes) -> bytes:
        if len(data) != TOLD.query_bytes:
            raise ValidationError(f"{len(data)} bytes; {TOLD.query_bytes} are a query")
        return data

    def forward(self, data: "bytes | list[bytes]") -> "bytes | list[bytes]":
        return self._answers.of(data) if isinstance(data, list) else self._answers.of([data])[0]

    def serialize(self, data: bytes) -> bytes:
        return data


if __name__ == "__main__":
    limit = str(2 * TOLD.query_bytes + (10 << 20))
    sys.argv[1:] = ["--address", TOLD.host, "--port", str(TOLD.port), "--log-level", "warning"]
    sys.argv += ["--max-request-size", limit]
    if "capacity" in TOLD.options:
        sys.argv += ["--capacity", str(TOLD.options["capacity"])]
    server = Server()
    # It waits whole milliseconds; 0 is none of them.
    wait = max(1, math.ceil(TOLD.max_delay_ms))
    server.append_worker(Predictor, TOLD.workers, TOLD.batch, wait, timeout=TIMEOUT_S)
    server.run()
