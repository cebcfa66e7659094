"""From a scenario to numbers: an iteration's time on a number of ranks, its parts, its interval, what would help."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from suite.errors import RequestError
from suite.predict.collectives import FLAT, Network
from suite.predict.data_parallel import data_parallel
from suite.predict.pipeline import pipeline
from suite.predict.scenario import EVEN, SCHEDULES, Scenario
from suite.predict.timeline import Timeline

MOST = 1_000_000  # ranks
NOTHING = 1e-9  # of an iteration: what sums of floats differ by


@dataclass(frozen=True)
class Prediction:
    """Seconds an iteration; stages + bubble + stragglers + exposed communication + waiting for input = iteration."""

    ranks: int
    schedule: str
    iteration: float
    low: float  # the ends of the 95 % interval of the iteration, from what was measured; equal without a spread
    high: float
    rate: float  # samples/s of all ranks
    efficiency: float  # rate / (ranks x one rank's)
    stages: float  # computing of one rank without the others
    bubble: float  # of a pipeline: waiting for other stages, as if nothing were sent
    stragglers: float  # the slowest rank's computing beyond that
    exposed: float  # communication that nothing hides
    input_wait: float
    exchanging: float  # seconds in which the link is busy
    messages: int
    critical_path: str  # in words

    @property
    def order(self) -> tuple[float, float]:
        """A key that is greater for the better of two; of equally fast ones that occupies the link for less time."""
        return float(f"{self.rate:.9g}"), -self.exchanging

    @property
    def rates(self) -> tuple[float, float]:
        """The interval of the rate."""
        return self.rate * self.iteration / self.high, self.rate * self.iteration / self.low

    def to_dict(self) -> dict[str, Any]:
        low, high = self.rates
        return {**asdict(self), "rate_low": low, "rate_high": high}


def timeline(scenario: Scenario, ranks: int) -> Timeline:
    """Return the iteration of the slowest of `ranks` ranks; RequestError for an impossible number."""
    if not 1 <= ranks <= MOST:
        raise RequestError(f"{ranks} ranks cannot be predicted; ask for 1 to {MOST:,}")
    return (pipeline if scenario.stages > 1 else data_parallel)(scenario, ranks)


def predict(scenario: Scenario, ranks: int) -> Prediction:
    """Predict an iteration; RequestError as `timeline`."""
    line = timeline(scenario, ranks)
    iteration, messages = line.seconds, line.messages
    stages = scenario.own - scenario.update * (1 - 1 / scenario.stages)  # each stage updates its own parameters
    slowest = stages * scenario.jitter.slowest(ranks)
    unhindered = slowest
    if scenario.stages > 1:
        unhindered = timeline(scenario.but(network=scenario.network.scaled(0, 0)), ranks).trained
    least = max(unhindered, scenario.input)  # of an iteration without an exchange
    low, high = _interval(scenario, ranks, iteration)
    return Prediction(
        ranks=ranks,
        schedule=scenario.schedule,
        iteration=iteration,
        low=low,
        high=high,
        rate=ranks * scenario.batch / iteration,
        efficiency=max(scenario.own, scenario.input) / iteration,
        stages=stages,
        bubble=unhindered - slowest,
        stragglers=slowest - stages,
        exposed=iteration - least if iteration - least > NOTHING * iteration else 0.0,
        input_wait=least - unhindered,
        exchanging=sum(span.end - span.begin for span in messages),
        messages=len(messages),
        critical_path=line.words,
    )


def _interval(scenario: Scenario, ranks: int, iteration: float) -> tuple[float, float]:
    """Return the interval's ends: errors of device and link are independent, so their effects add up in quadrature."""
    low = high = 0.0
    for part, error in (("compute", scenario.compute_error), ("link", scenario.link_error)):
        if error:
            low += (iteration - timeline(scenario.slower(**{part: 1 - error}), ranks).seconds) ** 2
            high += (timeline(scenario.slower(**{part: 1 + error}), ranks).seconds - iteration) ** 2
    return iteration - low**0.5, iteration + high**0.5


WORTH = 0.001  # smaller gains are not shown


@dataclass(frozen=True)
class Gain:
    """A change, and samples/s with it over samples/s without, less 1."""

    change: str
    gain: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def helps(scenario: Scenario, ranks: int) -> list[Gain]:
    """Return every change, the best first; of schedules and of algorithms only the best. Gains may be negative."""
    now = predict(scenario, ranks).rate
    found: dict[str, Gain] = {}
    for kind, change, changed in _changes(scenario, ranks):
        gain = Gain(change, predict(changed, ranks).rate / now - 1)
        if kind not in found or gain.gain > found[kind].gain:
            found[kind] = gain
    return sorted(found.values(), key=lambda each: -each.gain)


def _changes(scenario: Scenario, ranks: int) -> Iterator[tuple[str, str, Scenario]]:
    """Yield (kind, words, scenario) of the same training with one thing changed."""
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
