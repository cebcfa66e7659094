"""The performance model beside what others have published, for validation.py and the tests.

The folder holds B-Caffe's logs of GoogLeNet on K80s over 10 Gbit/s Ethernet, 64 samples per node (its repository's
`logdata`): one line per parameter blob, [id, numbers, backward us, exchange us, ...]; weights and biases alternate, and
what belongs to both stands at the weights or is repeated. The model is given what one node does and how long each
layer's exchange took while the schedule was wait-free; it has no parameter that these measurements could tune.
How long exchanges took is also known from the OSU benchmark of all-reduces on as many nodes (`allreduceN.log`: bytes,
microseconds), which trained nothing.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stagebench.suite.analysis.links import fitted
from stagebench.suite.predict.collectives import Link, Network, of_fit
from stagebench.suite.predict.prediction import Prediction, predict
from stagebench.suite.predict.scenario import LayerCost, Scenario, joined

BATCH, BLOBS = 64, 128
ALONE = 163.4  # samples/s of one node
# Samples/s as published; without overlap that code sends all gradients as one message.
MEASURED = {
    2: {"fused": 250.3, "wfbp": 299.3, "merged": 316.1},
    4: {"fused": 461.4, "wfbp": 599.3, "merged": 600.2},
    8: {"fused": 889.3, "wfbp": 1006.4, "merged": 1210.9},
}


class LoggedLayer(NamedTuple):
    """Of the last pass of a log."""

    bytes: float
    backward: float  # seconds
    exchange: float


class Point(NamedTuple):
    """A measurement and its prediction."""

    nodes: int
    schedule: str
    measured: float  # samples/s
    predicted: Prediction

    @property
    def error(self) -> float:
        return self.predicted.rate / self.measured - 1


def logged(folder: Path, nodes: int) -> list[LoggedLayer]:
    """In forward order."""
    text = (folder / f"tmp{'' if nodes == 1 else nodes}comm.log").read_text()
    found = re.findall(r"\[(\d+(?:, [\d.]+)+)\]$", text, re.MULTILINE)[-BLOBS:]
    blobs = [[float(number) for number in line.split(", ")] for line in found]
    return [
        LoggedLayer(4 * (weights[1] + biases[1]), weights[2] / 1e6, (weights[3] + biases[3]) / 1e6)
        for weights, biases in zip(blobs[::2], blobs[1::2], strict=True)
    ]


def benchmarked(folder: Path, nodes: int, least: float) -> list[tuple[float, float]]:
    """(bytes, seconds) of the OSU benchmark's all-reduces, from `least` bytes on."""
    text = (folder / f"allreduce{nodes}.log").read_text()
    found = re.findall(r"^(?:\d+,)?(\d+) +([\d.]+)$", text, re.MULTILINE)
    return [(float(size), float(microseconds) / 1e6) for size, microseconds in found if float(size) >= least]


def points(
    folder: Path, fit_nodes: int | None = None, algorithm: str = "ring", benchmark: bool = False
) -> Iterator[Point]:
    """Every measurement; the link as measured on as many nodes, or on `fit_nodes` for all: by the benchmark or not."""
    alone = logged(folder, 1)
    forward = BATCH / ALONE - sum(layer.backward for layer in alone)  # and all else that a node does
    layers = tuple(
        LayerCost(str(index), forward / len(alone), layer.backward, layer.bytes) for index, layer in enumerate(alone)
    )
    least = min(layer.bytes for layer in alone)  # what is smaller is never sent
    for nodes, measured in MEASURED.items():
        over = fit_nodes or nodes
        logs = [(layer.bytes, layer.exchange) for layer in logged(folder, over)]
        exchanges = benchmarked(folder, over, least) if benchmark else logs
        fit = fitted(*zip(*exchanges, strict=True))
        assert fit
        unknown = Network(Link(0.0, 0.0), algorithm=algorithm)
        link = of_fit(fit, over, unknown, "").link
        for schedule, rate in measured.items():
            scenario = Scenario(BATCH, joined(layers), Network(link, algorithm=algorithm), schedule)
            yield Point(nodes, schedule, rate, predict(scenario, nodes))
