"""A scenario from numbers alone: for a training that was not measured, on machines known from their data sheets."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from suite.errors import RequestError, StoreError
from suite.plan.networks import read as read_network
from suite.plan.overrides import is_path
from suite.plugins import workloads
from suite.predict.answer import Asked
from suite.predict.collectives import Network, positive
from suite.predict.known_link import KnownLink
from suite.predict.scenario import EVEN, Jitter, LayerCost, Scenario, joined
from suite.results.stored import text_of
from suite.text import chosen
from suite.worker.pipeline_stages import crossing
from workloads.graph import Graph, size

# Backward multiplies twice: for the gradient of the weights and for that of the input, which the first layer needs not.
BACKWARD = 2.0
ITEMSIZE = 4  # bytes of a number between layers


class Numbers(BaseModel):
    """A training on one device, in numbers; None: not known. A run folder knows all of them."""

    workload: str | None = None  # a name, or a network's file; of a run: only this network
    layers: Path | None = None  # a JSON list of layers with their seconds, instead of workload and rate
    batch: int | None = None  # samples per device
    rate: float | None = None  # samples/s of one device alone
    spread: float | None = None  # relative half width of the rate's interval
    read_rate: float | None = None  # samples/s of one reader; None: input is never waited for
    readers: int | None = None  # of each device
    jitter: float | None = None  # standard deviation of a rank's iterations over their mean


def asked(numbers: Numbers, network: Network, link: KnownLink | None) -> Asked:
    """Return the training; RequestError for a missing or impossible number. `network` lacks the link between ranks."""
    missing = list(_missing(numbers, link))
    if missing or link is None or numbers.batch is None:
        raise RequestError(f"to predict, give {'; '.join(missing)}; or name a run folder to learn from")
    positive("batch", numbers.batch)
    if numbers.spread is not None and not 0 <= numbers.spread < 1:
        raise RequestError(f"spread = {numbers.spread} should be a share, from 0 to below 1")
    if numbers.layers:
        label, layers, source = str(numbers.layers), from_file(numbers.layers), f"layers: {numbers.layers}"
    else:
        assert numbers.workload is not None
        assert numbers.rate is not None
        label, layers = _of_workload(numbers.workload, numbers.batch, numbers.rate)
        source = "layers: the rate's time divided by multiply-accumulates, twice as much for backward as for forward"
    if numbers.read_rate is not None:
        positive("read rate", numbers.read_rate)
    scenario = Scenario(
        batch=numbers.batch,
        layers=layers,
        network=replace(network, between=link.link),
        read=numbers.batch / numbers.read_rate if numbers.read_rate else 0.0,
        readers=1 if numbers.readers is None else numbers.readers,
        jitter=EVEN if numbers.jitter is None else Jitter.normal(numbers.jitter),
        compute_error=numbers.spread or 0.0,
        link_error=link.error,
    )
    return Asked(f"{label} batch {numbers.batch}", scenario, (source, link.source), {})


def _missing(numbers: Numbers, link: KnownLink | None) -> Iterator[str]:
    if numbers.layers and (numbers.workload is not None or numbers.rate is not None):
        raise RequestError("layers replaces workload and rate; leave one or the other out")
    if numbers.layers is None:
        if numbers.workload is None:
            yield "--workload, a network (or --set layers=FILE, instead of --workload and --rate)"
        if numbers.rate is None:
            yield "--rate, the samples/s of one device alone"
    if numbers.batch is None:
        yield "--batch, the samples of an iteration on one device"
    if link is None:
        yield "--alpha and --beta of the link (or --comm with a measured one)"


def _of_workload(name: str, batch: int, rate: float) -> tuple[str, tuple[LayerCost, ...]]:
    positive("rate", rate)
    workload = read_network(Path(name)) if is_path(name) else workloads()[chosen("workload", [name], workloads())[0]]
    return workload.name, by_arithmetic(workload.graph(), batch / rate, batch)


Amount = Annotated[float, Field(le=1e15)]  # beyond it sums are no numbers any more


class LayerRow(BaseModel):
    """A layer in a file, as the rows of `stagebench show --json` have it; other keys are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    layer: str
    forward_s: Amount
    backward_s: Amount
    bytes: Amount
    activation_bytes: Amount = 0.0


def by_arithmetic(graph: Graph, seconds: float, batch: int) -> tuple[LayerCost, ...]:
    """The seconds of an iteration, divided as the multiply-accumulates are; other layers cost nothing."""
    work = multiplications(graph)
    whole = sum(forward + backward for forward, backward in work)
    if not whole:
        raise RequestError(
            f"the network {graph.name!r} has no convolution and no dense layer to divide the time by; give "
            "--set layers=FILE"
        )
    crossing_bytes = activations(graph, batch)
    return joined(
        tuple(
            LayerCost(
                layer.name,
                seconds * forward / whole,
                seconds * backward / whole,
                layer.gradient_bytes(),
                crossing_bytes[layer.name],
            )
            for layer, (forward, backward) in zip(graph.layers, work, strict=True)
        )
    )


def multiplications(graph: Graph) -> list[tuple[float, float]]:
    """Multiply-accumulates of each layer: (forward, backward)."""
    first = next((layer.name for layer in graph.layers if layer.macs), None)
    return [(layer.macs, layer.macs * (BACKWARD if layer.name != first else 1.0)) for layer in graph.layers]


def activations(graph: Graph, batch: int) -> dict[str, float]:
    """By layer: the bytes of a batch that cross a cut after it."""
    shapes = {"input": graph.input_shape, **{layer.name: layer.shape for layer in graph.layers}}
    return {
        layer.name: ITEMSIZE * batch * sum(size(shapes[name]) for name in crossing(graph, place))
        for place, layer in enumerate(graph.layers, 1)
    }


def from_file(path: Path) -> tuple[LayerCost, ...]:
    """A JSON list of LayerRow in forward order; RequestError names the place of what is wrong."""
    try:
        rows = TypeAdapter(list[LayerRow]).validate_json(text_of(path, "give a JSON list of layers"))
    except StoreError as error:
        raise RequestError(str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RequestError(
            f"{path}, {place or 'top'}: {first['msg']}; every layer needs layer, forward_s, backward_s and bytes"
        ) from error
    if not rows:
        raise RequestError(f"{path} has no layer; give a JSON list of layers")
    if not any(row.forward_s or row.backward_s for row in rows):
        raise RequestError(f"{path}: its layers take no time at all; give their seconds")
    try:
        return joined(
            tuple(LayerCost(row.layer, row.forward_s, row.backward_s, row.bytes, row.activation_bytes) for row in rows)
        )
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from error
