"""OpenVINO as the controller sees it: what it can do and what its processes need."""

from pathlib import Path

from stagebench.suite.contracts.adapter import INFERENCE, Adapter, Capabilities, Strategy
from stagebench.suite.contracts.case import Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.knobs import Knob

KNOBS = {
    "hint": Knob(
        ("latency", "throughput"),
        "latency",
        "OpenVINO's performance hint. latency: all threads compute one query, its own default; throughput: they "
        "compute two queries at once, if there are two.",
    ),
}


class OpenVino(Adapter):
    """OpenVINO on CPUs: it only infers."""

    contract = 4
    name = "openvino"
    title = "OpenVINO"
    package = "stagebench.adapters.openvino"
    requires = ("openvino", "onnx")
    arithmetic_variables = ("OPENVINO_", "OV_")
    environment = "openvino"
    requirements = "stagebench/adapters/environments/openvino.txt"
    remedy = "stagebench env make openvino"

    capabilities = Capabilities(
        strategies=(
            Strategy(
                INFERENCE,
                "stagebench.adapters.openvino.inference:OpenVinoPredictor",
                "No training: answers of the network as an ONNX model; tuned: compiled for each number of samples.",
                infers=True,
                distributed=False,
            ),
        ),
        knobs=KNOBS,
        real_data=False,
    )

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        """Return the variable that turns off telemetry: `import openvino` uploads an event unless it runs in CI."""
        return {"CI": "true"}


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [OpenVino()]
