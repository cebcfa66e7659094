"""How a query of one sample, and its answer, are written in a request, and in what comes back.

`raw`: the numbers as bytes, both ways. `v2`: the Open Inference Protocol with its binary extension
(https://github.com/kserve/open-inference-protocol; the extension: Triton's protocol/extension_binary_data), its tensors
called as in our ONNX models; `v2-grpc`: the same over gRPC, with raw contents. `json`: {"instances": [sample]}, and a
list of answers, alone or as "predictions", as in TensorFlow Serving (https://www.tensorflow.org/tfx/serving/api_rest).
"""

import json
import time
from typing import Any, Callable, Dict, Optional

import numpy as np

from stagebench.suite.worker import infer_messages

V2_TYPES = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "int32": "INT32", "int64": "INT64"}
INPUT, OUTPUT = "input", "logits"  # the names of tensors, as stagebench.suite.worker.onnx_network writes them
V2_HEADER = "inference-header-content-length"
GRPC = "v2-grpc"
PROTOCOLS = ("raw", "v2", GRPC, "json")


class Query:
    """A query, from its scheduled arrival to its answer or failure."""

    __slots__ = ("body", "done", "due", "error", "fields", "give_up", "number", "seen", "sent", "status")

    def __init__(self, number: int, due: float) -> None:
        self.number, self.due, self.sent = number, due, time.perf_counter()
        self.done = 0.0
        self.status = 0  # of HTTP; 0: no answer; -1: its connection broke
        self.error = ""  # why it broke
        self.fields: Dict[str, str] = {}
        self.body: Optional[bytes] = None
        self.seen = False  # whether the body was an answer, and is no longer kept
        self.give_up: Optional[Callable[[], Any]] = None


def request(protocol: str, host: str, path: str, sample: np.ndarray) -> bytes:
    """Return a request, whole; by gRPC its message, and `path` is the model's name."""
    if protocol == GRPC:
        kind, shape = V2_TYPES[str(sample.dtype)], (1,) + sample.shape
        return infer_messages.request(path, INPUT, kind, shape, sample.tobytes(), OUTPUT)
    body, fields = sample.tobytes(), {"Content-Type": "application/octet-stream"}
    if protocol == "json":
        body, fields = json.dumps({"instances": [sample.tolist()]}).encode(), {"Content-Type": "application/json"}
    elif protocol == "v2":
        query = {
            "name": INPUT,
            "shape": [1] + list(sample.shape),
            "datatype": V2_TYPES[str(sample.dtype)],
            "parameters": {"binary_data_size": len(body)},
        }
        answer = {"name": OUTPUT, "parameters": {"binary_data": True}}
        head = json.dumps({"inputs": [query], "outputs": [answer]}).encode()
        body, fields[V2_HEADER] = head + body, str(len(head))
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines + ["", ""]).encode() + body


def answer(protocol: str, fields: Dict[str, str], body: bytes, like: np.ndarray) -> Optional[np.ndarray]:
    """Return the answer, of the shape and type of `like`; None if it is not one. `fields` have lower case names."""
    try:
        if protocol == "json":
            said = json.loads(body.decode())
            found = np.asarray(said.get("predictions") if isinstance(said, dict) else said, like.dtype)
        elif protocol == GRPC:
            found = np.frombuffer(infer_messages.answer(body), like.dtype)
        else:
            found = np.frombuffer(body[int(fields[V2_HEADER]) if protocol == "v2" else 0 :], like.dtype)
        return found.reshape(like.shape)
    except (KeyError, IndexError, ValueError, TypeError, OverflowError, RecursionError):
        return None
