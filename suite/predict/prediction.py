"""From a scenario to numbers: an iteration's time on ranks, its parts, its interval, what would help; the answers."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from stagebench.suite.analysis.stats import Interval
from stagebench.suite.errors import RequestError
from stagebench.suite.predict.collectives import FLAT, Network
from stagebench.suite.predict.data_parallel import data_parallel
from stagebench.suite.predict.pipeline import Pipelines, pipeline
from stagebench.suite.predict.scenario import EVEN, SCHEDULES, Scenario
from stagebench.suite.predict.timeline import Timeline

MOST = 1_000_000  # ranks
NOTHING = 1e-9  # of an iteration: what sums of floats differ by


@dataclass(frozen=True)
class Prediction:
    """Seconds an iteration; stages + bubble + stragglers + exposed communication + waiting for input = iteration."""

    ranks: int
    schedule: str
    iteration: float
    low: float  # the ends of the 95 % interval of the iteration: of device, link and model; equal without errors
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
    # Errors of device, link and model are independent, so their effects add up in quadrature.
    low = high = (scenario.model_error * iteration) ** 2
    for part, error in (("compute", scenario.compute_error), ("link", scenario.link_error)):
        if error:
            low += (iteration - timeline(scenario.slower(**{part: 1 - error}), ranks).seconds) ** 2
            high += (timeline(scenario.slower(**{part: 1 + error}), ranks).seconds - iteration) ** 2
    return Prediction(
        ranks=ranks,
        schedule=scenario.schedule,
        iteration=iteration,
        low=iteration - low**0.5,
        high=iteration + high**0.5,
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


class Gain(NamedTuple):
    """A change, and samples/s with it over samples/s without, less 1."""

    change: str
    gain: float


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
    known = any(layer.fixed for layer in scenario.layers)
    yield "batch", f"twice the batch{'' if known else ', at the same seconds a sample'}", scenario.batched(2)
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


TRUSTED = 0.1  # the greatest error of a prediction that is of use; docs/validation.md

# Of strong scaling, where nothing says how a device's time depends on its batch.
ASSUMED = "batch: a sample is assumed to take as long in any batch; measure two batches, or give --set fixed_share"


@dataclass(frozen=True)
class Asked:
    """A training, the sources of its scenario in words, and its measured samples/s by device count."""

    label: str
    scenario: Scenario
    sources: tuple[str, ...]
    measured: dict[int, Interval]
    fitted_to: int | None = None  # devices; a speed measured on as many does not test the model
    cases: tuple[str, ...] = ()  # ids of those measured
    together: int | None = None  # samples of all devices (strong scaling); None: each has the scenario's batch
    pipelines: Pipelines | None = None  # how devices hold the network in stages; None: as in the scenario
    link_known: bool = True  # False: the rest of a pipeline's step is taken for it, which gives no exchange

    def refusal(self, ranks: int) -> str | None:
        """Return why `ranks` ranks are impossible, with the remedy; None if they are possible."""
        if self.together and ranks > self.together:
            return f"there are only {self.together} samples; ask for {self.together} at most"
        samples = Fraction(self.together, ranks) if self.together else Fraction(self.scenario.batch)
        return self.pipelines.refusal(ranks, samples) if self.pipelines else None

    def on(self, ranks: int, schedule: str) -> Scenario:
        """Return the scenario of `ranks` ranks; RequestError for an impossible number."""
        refusal = self.refusal(ranks)
        if refusal:
            raise RequestError(f"{self.label} on {ranks} ranks: {refusal}")
        scenario = self.scenario.but(schedule=schedule)
        if not self.pipelines:
            return self._shared(scenario, ranks)
        return self.pipelines.on(self._shared(scenario.but(microbatches=1), ranks), ranks)

    def alone(self, schedule: str) -> Scenario:
        """Return the scenario of one device, with the batch of all in strong scaling."""
        read = self.scenario.read / (self.scenario.stages if self.pipelines else 1)
        whole = {"stages": 1, "microbatches": 1, "borders": ()}
        return self._shared(self.scenario.but(schedule=schedule, read=read, **whole), 1)

    def _shared(self, scenario: Scenario, ranks: int) -> Scenario:
        return scenario.batched(self.together / ranks / scenario.batch) if self.together else scenario

    def changed(self, what: Sequence[str], **parts: Any) -> "Asked":
        """Replace parts of the scenario, `what` in words; the result has no measured speeds."""
        sources = (*self.sources, *(f"changed: {each}" for each in what))
        return replace(self, scenario=self.scenario.but(**parts), sources=sources, measured={}, fitted_to=None)


@dataclass(frozen=True)
class Answer:
    """Every size by every schedule; reading it raises RequestError for an impossible size."""

    asked: Asked
    schedules: Sequence[str]
    sizes: Sequence[int]  # ranks

    @cached_property
    def predictions(self) -> list[Prediction]:
        """Every prediction, size by size."""
        predictions = []
        for ranks in self.sizes:
            for schedule in self.schedules:
                one = predict(self.asked.on(ranks, schedule), ranks)
                if self.asked.together or self.asked.pipelines:  # a single rank has the whole batch, or network
                    one = replace(one, efficiency=one.rate / ranks / predict(self.asked.alone(schedule), 1).rate)
                predictions.append(one)
        return predictions

    @property
    def largest(self) -> Prediction:
        """The prediction on the most ranks, by the schedule that is the best there."""
        most = max(self.sizes)
        return max((one for one in self.predictions if one.ranks == most), key=lambda one: one.order)

    def scenario_of(self, one: Prediction) -> Scenario:
        return self.asked.on(one.ranks, one.schedule)

    @cached_property
    def gains(self) -> list[Gain]:
        """The changes of the largest size, those that help most first."""
        return helps(self.scenario_of(self.largest), self.largest.ranks)

    def measured(self, one: Prediction) -> Interval | None:
        """Return samples/s on as many devices; None for a schedule that was not fitted, hence not measured."""
        return self.asked.measured.get(one.ranks) if one.schedule == self.asked.scenario.schedule else None

    def error(self, one: Prediction) -> float | None:
        """Return predicted over measured samples/s, less 1; None without a measured speed."""
        measured = self.measured(one)
        return one.rate / measured.value - 1 if measured else None

    def wrong(self, one: Prediction) -> bool:
        """Return True if it is further from the measured speed than a reader should trust."""
        error = self.error(one)
        return error is not None and abs(error) > TRUSTED

    def to_dict(self) -> dict[str, Any]:
        rows = [{**one.to_dict(), "error": self.error(one)} for one in self.predictions]
        return {
            "label": self.asked.label,
            "sources": list(self.asked.sources),
            "fitted_to": self.asked.fitted_to,
            "measured": {ranks: asdict(rate) for ranks, rate in self.asked.measured.items()},
            "predictions": rows,
            "gains": [gain._asdict() for gain in self.gains],
        }
