"""Triton in front of the predictor: run in Triton's environment, which has the server's binary.

As a program it writes a model repository and becomes the server, whose Python backend imports the model from here.
"""

import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np

from stagebench.suite.worker.protocols import GRPC, INPUT, OUTPUT, V2_TYPES
from stagebench.suite.worker.shared_answers import Answers, served

TOLD = served()
NAME = "queries"


class TritonPythonModel:
    """Hands batches to the predictor."""

    def initialize(self, args: "dict[str, str]") -> None:
        self._answers = Answers(TOLD)

    def execute(self, requests: "list[Any]") -> "list[Any]":
        import triton_python_backend_utils as backend  # the backend brings it

        queries = [backend.get_input_tensor_by_name(each, INPUT).as_numpy() for each in requests]
        found = self._answers.of([each.reshape(-1).view(np.uint8) for each in queries])
        answers = (np.frombuffer(each, TOLD.answer_type).reshape([1, *TOLD.answer_shape]) for each in found)
        return [backend.InferenceResponse([backend.Tensor(OUTPUT, each)]) for each in answers]


def batching() -> str:
    """Return the batcher's settings in the text format of protocol buffers, which writes values as JSON does."""
    chosen = {"max_queue_delay_microseconds": round(1000.0 * TOLD.max_delay_ms), **TOLD.options}
    return " ".join(f"{name}: {json.dumps(value)}" for name, value in chosen.items())


def tensor(name: str, kind: str, shape: "list[int]") -> str:
    """Return a tensor's declaration in the text format of protocol buffers, without the batch's dimension."""
    return f'[ {{ name: "{name}" data_type: TYPE_{V2_TYPES[kind]} dims: {shape} }} ]'


# No policy for the queue: with a timeout in it, the batcher sleeps for 500 ms now and then (its issue 8870).
CONFIGURATION = f"""
backend: "python"
max_batch_size: {TOLD.batch}
input {tensor(INPUT, TOLD.query_type, TOLD.query_shape)}
output {tensor(OUTPUT, TOLD.answer_type, TOLD.answer_shape)}
instance_group [ {{ count: {TOLD.workers} kind: KIND_CPU }} ]
dynamic_batching {{ {batching()} }}
"""
# The backend's Python is isolated: it heeds no PYTHONPATH.
MODEL = f"""
import sys
sys.path += {sys.path}
from stagebench.cluster.model_servers.triton_program import TritonPythonModel
"""


if __name__ == "__main__":
    site = Path(sysconfig.get_path("purelib"))
    folder, version = site / "pytriton" / "tritonserver", f"{sys.version_info.major}.{sys.version_info.minor}"
    model, backends = Path("repository", NAME), Path("backends", "python")
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(MODEL)
    (model / "config.pbtxt").write_text(CONFIGURATION)
    shutil.copytree(folder / "backends" / "python", backends)
    shutil.copy(folder / "python_backend_stubs" / version / "triton_python_backend_stub", backends)
    # The stub is linked to libpython, and finds its modules by the `python3` of PATH.
    libraries = [sysconfig.get_config_var("LIBDIR"), str(site / "nvidia_pytriton.libs")]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    tokens = ["--model-repository=repository", "--backend-directory=backends"]
    spoken, silent = ("grpc", "http") if TOLD.protocol == GRPC else ("http", "grpc")
    tokens += [f"--{spoken}-address={TOLD.host}", f"--{spoken}-port={TOLD.port}", f"--allow-{silent}=false"]
    tokens += ["--allow-metrics=false", "--exit-timeout-secs=5", "--log-info=false"]
    os.execv(folder / "bin" / "tritonserver", ["tritonserver", *tokens])
