"""What would help most: the same training with one thing changed, ranked by what it gains."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from suite.predict.collectives import FLAT, Network
from suite.predict.prediction import predict
from suite.predict.scenario import SCHEDULES, Scenario
from suite.predict.stragglers import EVEN

WORTH = 0.001  # a smaller gain is none


@dataclass(frozen=True)
class Gain:
    """A change, and samples/s with it over samples/s without, less 1."""

    change: str
    gain: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def helps(scenario: Scenario, ranks: int) -> list[Gain]:
    """Every change, the best first; of schedules and of algorithms only the best. A gain may be negative."""
    now = predict(scenario, ranks).rate
    found: dict[str, Gain] = {}
    for kind, change, changed in _changes(scenario, ranks):
        gain = Gain(change, predict(changed, ranks).rate / now - 1)
        if kind not in found or gain.gain > found[kind].gain:
            found[kind] = gain
    return sorted(found.values(), key=lambda each: -each.gain)


def _changes(scenario: Scenario, ranks: int) -> Iterator[tuple[str, str, Scenario]]:
    """(kind, words, scenario)."""
    yield "device", "a device twice as fast", scenario.slower(compute=0.5)
    yield "batch", "twice the batch, at the same seconds a sample", scenario.batched(2)
    if scenario.read:
        yield "readers", "twice the readers", scenario.but(readers=2 * scenario.readers)
    if scenario.jitter is not EVEN:
        yield "jitter", "ranks that all take the same time", scenario.but(jitter=EVEN)
    if scenario.stages > 1 and 2 * scenario.microbatches <= scenario.batch * scenario.stages:
        yield "microbatches", "twice the microbatches", scenario.but(microbatches=2 * scenario.microbatches)
    halved = scenario.but(compression=2 * scenario.compression)
    yield "compression", "half the bytes, as gradients of 16 bits (compressing costs nothing here)", halved
    for name in SCHEDULES if scenario.stages == 1 else ():
        if name != scenario.schedule:
            yield "schedule", f"schedule {name}", scenario.but(schedule=name)
    for kind, words, network in _networks(scenario.network, ranks):
        yield kind, words, scenario.but(network=network)


def _networks(network: Network, ranks: int) -> Iterator[tuple[str, str, Network]]:
    yield "bandwidth", "twice the bandwidth", network.scaled(1, 0.5)
    yield "latency", "half the latency", network.scaled(0.5, 1)
    hierarchical = network.ranks_per_node > 1 and network.fills(ranks)
    for name in (*FLAT, *(["hierarchical"] if hierarchical else [])):
        if name != network.algorithm:
            yield "algorithm", f"all-reduce by {name}", replace(network, algorithm=name)
    if network.algorithm == "server":
        yield "servers", "twice the parameter servers", replace(network, servers=2 * network.servers)
