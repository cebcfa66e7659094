"""From a scenario to numbers: the time of an iteration on so many ranks, what it consists of, and how sure that is."""

from dataclasses import asdict, dataclass
from typing import Any

from suite.errors import RequestError
from suite.predict.data_parallel import data_parallel
from suite.predict.pipeline import pipeline
from suite.predict.scenario import Scenario
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
    stages: float  # what one rank computes by itself
    bubble: float  # of a pipeline: waiting for other stages, as if nothing were sent
    stragglers: float  # how much longer the slowest rank computes
    exposed: float  # communication that nothing hides
    input_wait: float
    exchanging: float  # in which the link is busy
    messages: int
    critical_path: str  # in words

    @property
    def order(self) -> tuple[float, float]:
        """Greater for the better of two; where both are as quick, for the one that occupies the link for less time."""
        return float(f"{self.rate:.9g}"), -self.exchanging

    @property
    def rates(self) -> tuple[float, float]:
        """The interval of the rate."""
        return self.rate * self.iteration / self.high, self.rate * self.iteration / self.low

    def to_dict(self) -> dict[str, Any]:
        low, high = self.rates
        return {**asdict(self), "rate_low": low, "rate_high": high}


def timeline(scenario: Scenario, ranks: int) -> Timeline:
    """The iteration of the slowest of so many ranks; RequestError for a number that cannot be."""
    if not 1 <= ranks <= MOST:
        raise RequestError(f"{ranks} ranks cannot be predicted; ask for 1 to {MOST:,}")
    return (pipeline if scenario.stages > 1 else data_parallel)(scenario, ranks)


def predict(scenario: Scenario, ranks: int) -> Prediction:
    """RequestError as `timeline`."""
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
    """The device's and the link's errors are independent: what each does to the iteration adds up in quadrature."""
    low = high = 0.0
    for part, error in (("compute", scenario.compute_error), ("link", scenario.link_error)):
        if error:
            low += (iteration - timeline(scenario.slower(**{part: 1 - error}), ranks).seconds) ** 2
            high += (timeline(scenario.slower(**{part: 1 + error}), ranks).seconds - iteration) ** 2
    return iteration - low**0.5, iteration + high**0.5
