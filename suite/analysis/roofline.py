"""The roofline of a network on its machine: the needs of each layer, and its speed at the measured peaks.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", 2009. Of a training step on
one device, by the graph alone. A multiply-accumulate is two operations; backward does it once for the weights' gradient
and once for the input's, where one is wanted. Bytes are those of every tensor that a layer cannot do without, once:

| | reads | writes |
|---|---|---|
| forward | inputs, parameters | output |
| backward | output's gradient, parameters, inputs (linear layers: none) | gradients of inputs and of parameters |
| update | parameters, gradients, the optimiser's state | parameters, state |

A framework that fuses layers, or whose tensors stay in a cache, moves fewer and can be faster than this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stagebench.suite.analysis.machine import Peak
from stagebench.suite.analysis.rows import OPERATIONS, Row
from stagebench.suite.contracts.case import Case, Configuration
from stagebench.suite.plan.networks import network_of
from stagebench.suite.worker.contract import LayerTimes as Times
from stagebench.suite.worker.layers import wanting
from stagebench.workloads.graph import Graph, Layer, size

BYTES = {"float64": 8, "float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2}  # of a number, by precision


@dataclass(frozen=True)
class Roof:
    """The needs of a layer, or of the update, on a device in an iteration."""

    layer: str
    kind: str
    operations: float
    bytes: float
    best_s: float  # at the peaks
    bound_by: str  # "arithmetic" or "memory"
    measured_s: float | None = None  # forward and backward; None where layers were not timed

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None if no byte is moved."""
        return self.operations / self.bytes if self.bytes else None

    @property
    def share(self) -> float | None:
        """The fraction of the roofline's speed that was reached; None if unknown."""
        return self.best_s / self.measured_s if self.measured_s and self.best_s else None


@dataclass(frozen=True)
class Roofline:
    """A network's layers and its update on one of a case's devices."""

    peak: Peak  # of that device
    batch: int  # samples
    rows: tuple[Roof, ...]

    @cached_property
    def by_layer(self) -> dict[str, Roof]:
        return {row.layer: row for row in self.rows}

    @property
    def best_s(self) -> float:
        """Seconds of an iteration, layer by layer, without exchange and input."""
        return sum(row.best_s for row in self.rows)

    @property
    def best_rate(self) -> float:
        """Samples/s of one device."""
        return self.batch / self.best_s

    @property
    def memory_share(self) -> float:
        """The share of the best iteration that memory bounds."""
        return sum(row.best_s for row in self.rows if row.bound_by == "memory") / self.best_s


def of_row(run: Path, row: Row) -> Roofline | None:
    """Return the roofline of a run's row; None without a measured peak, or if its network is not installed."""
    known = row.peak and row.case.precision in BYTES and not row.case.infers  # what training needs
    graph = network_of(run, row.case) if known else None
    return roofline(graph, row.case, row.peak, row.layers or ()) if graph and row.peak else None


def roofline(graph: Graph, case: Configuration, peak: Peak, times: Sequence[Times] = ()) -> Roofline:
    """`peak` is that of all of the case's devices; `times` are the layers', if they were measured."""
    itemsize, devices = BYTES[case.precision], case.placement.device_count
    own = Peak(peak.flop_per_s / devices, peak.bytes_per_s / devices, peak.library)
    measured = {one.layer: one.forward_s + one.backward_s for one in times}
    rows = []
    for layer, wanted in zip(graph.layers, wanting(graph), strict=True):
        if not layer.is_view:
            operations, moved = _needs(layer, wanted, case.batch, itemsize)
            rows.append(_roof(layer.name, layer.kind, operations, moved, own, measured.get(layer.name)))
    states = int(case.momentum > 0) if case.optimiser == "sgd" else 2  # numbers kept of every parameter
    held = max(itemsize, BYTES["float32"])  # in mixed precision parameters, gradients and states are float32
    moved = held * graph.parameter_count * (3 + 2 * states)
    return Roofline(own, case.batch, (*rows, _roof("update", case.optimiser, 0.0, moved, own, None)))


def macs_of(run: Path, case: Case) -> int | None:
    """Return multiply-accumulates of a step, or of a query, per sample; None if the network is not installed."""
    graph = network_of(run, case)
    if graph and case.infers:
        return graph.macs
    return sum(map(_macs, graph.layers, wanting(graph))) if graph else None


def tokens_of(run: Path, case: Case) -> int | None:
    """Return the labels of a sample, 0 for a single one; None if the network is not installed."""
    graph = network_of(run, case)
    return sum(graph.label_shape) if graph else None


def _macs(layer: Layer, wanted: Sequence[bool]) -> int:
    """Count forward, the weights' gradient, and the input's, which the first layer does not need.

    Attention multiplies results by results: both operands are its input.
    """
    operands = bool(layer.parameters) + any(wanted) if layer.parameters else 2 * any(wanted)
    return layer.macs * (1 + operands)


def _needs(layer: Layer, wanted: Sequence[bool], batch: int, itemsize: int) -> tuple[float, float]:
    """Return (operations, bytes) of forward and backward."""
    inputs = [size(shape) for shape in layer.input_shapes]
    passed_on = sum(values for values, gradient in zip(inputs, wanted, strict=True) if gradient)
    trained = bool(layer.parameters or passed_on)
    forward = sum(inputs) + size(layer.shape)
    backward = trained * (size(layer.shape) + passed_on + (not layer.linear) * sum(inputs))
    numbers = batch * (forward + backward) + layer.parameter_count * (3 if any(wanted) else 2)
    return OPERATIONS * batch * _macs(layer, wanted), itemsize * numbers


def _roof(layer: str, kind: str, operations: float, moved: float, peak: Peak, measured: float | None) -> Roof:
    arithmetic, memory = operations / peak.flop_per_s, moved / peak.bytes_per_s
    bound = "arithmetic" if arithmetic >= memory else "memory"
    return Roof(layer, kind, operations, moved, max(arithmetic, memory), bound, measured)
