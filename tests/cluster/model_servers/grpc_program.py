"""A model server over gRPC, which reads queries by generated code; FAULT names what it does wrong."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelInferResponse

from stagebench.suite.worker.shared_answers import Answers, served

TOLD, FAULT = served(), os.environ["FAULT"]
CODES = {
    "refuses": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "is not there": grpc.StatusCode.UNAVAILABLE,
    "gives up": grpc.StatusCode.DEADLINE_EXCEEDED,
    "fails": grpc.StatusCode.INTERNAL,
}
FIRST = 3  # answers that are right, so that it is ready
given, lock = [], threading.Lock()


def infer(request, context):
    """Answer a query, once it is seen to be well formed."""
    (tensor,), (output,), (content,) = request.inputs, request.outputs, request.raw_input_contents
    asked = (request.model_name, tensor.name, tensor.datatype, list(tensor.shape), output.name)
    if asked != ("queries", "input", "FP32", [1, *TOLD.query_shape], "logits"):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(asked))
    with lock:
        number, before = len(given), given[-1:]
        given.extend(answers.of([content]))
        contents = given[-1:]
    if number >= FIRST:
        if FAULT in CODES:
            context.abort(CODES[FAULT], "no answer")
        if FAULT == "forgets one" and number == FIRST:
            time.sleep(600)
        contents = {"swaps": before, "says nothing": []}.get(FAULT, contents)
    return ModelInferResponse(model_name="queries", raw_output_contents=contents)


answers = Answers(TOLD)
written = {
    "request_deserializer": ModelInferRequest.FromString,
    "response_serializer": ModelInferResponse.SerializeToString,
}
methods = {"ModelInfer": grpc.unary_unary_rpc_method_handler(infer, **written)}
server = grpc.server(ThreadPoolExecutor(8))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods)])
server.add_insecure_port(f"{TOLD.host}:{TOLD.port}")
server.start()
server.wait_for_termination()
