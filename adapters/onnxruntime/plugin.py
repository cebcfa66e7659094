"""ONNX Runtime as the controller sees it: what it can do and what its processes need."""

from pathlib import Path

from stagebench.suite.contracts.adapter import INFERENCE, Adapter, Capabilities, Strategy
from stagebench.suite.contracts.case import Configuration
from stagebench.suite.contracts.hooks import hookimpl


class OnnxRuntime(Adapter):
    """ONNX Runtime on CPUs: it only infers."""

    contract = 4
    name = "onnxruntime"
    title = "ONNX Runtime"
    package = "stagebench.adapters.onnxruntime"
    requires = ("onnxruntime", "onnx")
    arithmetic_variables = ("MLAS_", "ORT_")
    out_of_memory = ("Failed to allocate memory for requested buffer",)  # onnxruntime/core/framework/bfc_arena.cc
    environment = "onnxruntime"
    requirements = "stagebench/adapters/environments/onnxruntime.txt"
    remedy = "stagebench env make onnxruntime"

    capabilities = Capabilities(
        strategies=(
            Strategy(
                INFERENCE,
                "stagebench.adapters.onnxruntime.inference:OrtPredictor",
                "No training: answers of the network as an ONNX model; tuned: attention by ONNX's own operator, local "
                "response normalisation as a convolution.",
                infers=True,
                distributed=False,
            ),
        ),
        real_data=False,
    )

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        """Return the variable that turns off telemetry: official builds upload events while a case is measured."""
        return {"ORT_DISABLE_TELEMETRY": "1"}


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [OnnxRuntime()]
