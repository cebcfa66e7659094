"""LitServe in front of the predictor: run in LitServe's environment."""

from typing import Annotated

import litserve
from fastapi import Depends, HTTPException, Request, Response

from stagebench.suite.worker.shared_answers import Answers, served

TOLD = served()
TIMEOUT_S = 600.0  # of a query in the server: the generator gives up sooner


async def raw(request: Request) -> bytes:
    """Return the body as it came: with a Request, LitServe would read JSON."""
    return await request.body()


class Api(litserve.LitAPI):
    """Hands batches to the predictor."""

    def setup(self, device: str) -> None:
        self._answers = Answers(TOLD)

    def decode_request(self, request: Annotated[bytes, Depends(raw)]) -> bytes:
        if len(request) != TOLD.query_bytes:
            raise HTTPException(400, f"{len(request)} bytes; {TOLD.query_bytes} are a query")
        return request

    def batch(self, inputs: "list[bytes]") -> "list[bytes]":
        return inputs

    def predict(self, x: "bytes | list[bytes]") -> "bytes | list[bytes]":
        return self._answers.of(x) if isinstance(x, list) else self._answers.of([x])[0]

    def unbatch(self, output: "list[bytes]") -> "list[bytes]":
        return output

    def encode_response(self, output: bytes) -> Response:
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    api = Api(max_batch_size=TOLD.batch, batch_timeout=TOLD.max_delay_ms / 1000.0)
    server = litserve.LitServer(
        api,
        accelerator="cpu",
        workers_per_device=TOLD.workers,
        timeout=TIMEOUT_S,
        fast_queue=TOLD.options.get("fast_queue", False),
    )
    server.run(
        host=TOLD.host,
        port=TOLD.port,
        num_api_servers=TOLD.options.get("num_api_servers", 1),
        generate_client_file=False,  # into the working directory
        log_level="warning",
        timeout_keep_alive=3600,  # it would close connections that wait for 5 s
    )
