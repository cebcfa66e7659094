"""From a scenario to numbers: the time of an iteration on so many ranks, what it consists of, and how sure that is."""

from dataclasses import asdict, dataclass
from typing import Any

from suite.errors import RequestError
from suite.predict.scenario import Scenario
from suite.predict.timeline import DEVICE, LINK, timeline

MOST = 1_000_000  # ranks


@dataclass(frozen=True)
class Prediction:
    """Seconds an iteration; stages + stragglers + exposed communication + waiting for input = iteration."""

    ranks: int
    schedule: str
    iteration: float
    low: float  # the ends of the 95 % interval of the iteration, from what was measured; equal without a spread
    high: float
    rate: float  # samples/s of all ranks
    efficiency: float  # rate / (ranks x one rank's)
    stages: float  # what one rank computes by itself
    stragglers: float  # how much longer the slowest rank computes
    exposed: float  # communication that nothing hides
    input_wait: float
    exchanging: float  # in which the link is busy
    messages: int
    critical_path: str  # in words

    @property
    def rates(self) -> tuple[float, float]:
        """The interval of the rate."""
        return self.rate * self.iteration / self.high, self.rate * self.iteration / self.low

    def to_dict(self) -> dict[str, Any]:
        low, high = self.rates
        return {**asdict(self), "rate_low": low, "rate_high": high}


def predict(scenario: Scenario, ranks: int) -> Prediction:
    """RequestError for a number of ranks that cannot be."""
    if not 1 <= ranks <= MOST:
        raise RequestError(f"{ranks} ranks cannot be predicted; ask for 1 to {MOST:,}")
    line = timeline(scenario, ranks)
    iteration, own = line.seconds, scenario.own
    slowest = own * scenario.jitter.slowest(ranks)
    trained = max(span.end for span in line.spans if span.lane == DEVICE)
    low, high = _interval(scenario, ranks, iteration)
    return Prediction(
        ranks=ranks,
        schedule=scenario.schedule,
        iteration=iteration,
        low=low,
        high=high,
        rate=ranks * scenario.batch / iteration,
        efficiency=max(own, scenario.input) / iteration,
        stages=own,
        stragglers=slowest - own,
        exposed=trained - slowest,
        input_wait=iteration - trained,
        exchanging=line.exchanging,
        messages=sum(span.lane == LINK for span in line.spans),
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
