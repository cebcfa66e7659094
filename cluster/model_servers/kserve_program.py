"""KServe's server in front of the predictor: run in the environment of KServe's SDK.

Its workers import the model from here. It makes no batches: on a cluster a container next to it does.
"""

import logging
from typing import Any

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.protocol.rest.multiprocess.server import RESTServerProcess

from stagebench.suite.worker.protocols import OUTPUT, V2_TYPES
from stagebench.suite.worker.shared_answers import Answers, served

TOLD = served()
logging.disable(logging.INFO)  # three lines of each query


class Queries(Model):
    """Hands queries to the predictor, one at a time."""

    def __init__(self) -> None:
        super().__init__("queries")
        self._answers: Answers | None = None
        self.ready = True

    def predict(self, payload: InferRequest, *_: Any, **__: Any) -> InferResponse:
        """Return the answer to a query."""
        if self._answers is None:  # several workers are each given a copy of the model
            self._answers = Answers(TOLD)
        query = payload.inputs[0].as_numpy()
        (found,) = self._answers.of([query.reshape(-1).view(np.uint8)])
        answer = np.frombuffer(found, TOLD.answer_type).reshape([1, *TOLD.answer_shape])
        output = InferOutput(OUTPUT, list(answer.shape), V2_TYPES[TOLD.answer_type])
        output.set_data_from_numpy(answer)
        return InferResponse(payload.id or "0", self.name, [output], requested_outputs=payload.request_outputs)


class Local(ModelServer):
    """Listens at one address; the server has no setting for it, and takes all."""

    def setup_event_loop(self) -> None:
        """Set the address, at the last moment before it is bound."""
        several = self._rest_multiprocess_server
        (several._rest_server if several else self._rest_server).config.host = TOLD.host
        super().setup_event_loop()


def runs(worker: RESTServerProcess, timeout: float = 0.0) -> bool:
    """Return whether a worker's process runs.

    The server's own check ends one that does not answer for 5 s, over and over where importing takes longer.
    """
    return worker._process.is_alive()


if __name__ == "__main__":
    RESTServerProcess.is_alive = runs
    server = Local(
        TOLD.port, workers=TOLD.workers, enable_grpc=False, enable_latency_logging=False, timeout_keep_alive=3600
    )
    server.start([Queries()])
