"""A training asked about, and the model's answer: every size and schedule, measured speeds, what would help."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from suite.analysis.stats import Interval
from suite.errors import RequestError
from suite.predict.pipeline import Pipelines
from suite.predict.prediction import Gain, Prediction, helps, predict
from suite.predict.scenario import Scenario

TRUSTED = 0.1  # the greatest error of a prediction that is of use; docs/validation.md


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
        """Return the scenario of `ranks` ranks; a sample's time is assumed not to depend on the batch.

        RequestError for an impossible number.
        """
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
        return [self._predicted(ranks, name) for ranks in self.sizes for name in self.schedules]

    def _predicted(self, ranks: int, schedule: str) -> Prediction:
        found = predict(self.asked.on(ranks, schedule), ranks)
        if not (self.asked.together or self.asked.pipelines):
            return found
        # A single rank has the whole batch, or the whole network.
        return replace(found, efficiency=found.rate / ranks / predict(self.asked.alone(schedule), 1).rate)

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
        found = self.measured(one)
        return one.rate / found.value - 1 if found else None

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
            "gains": [gain.to_dict() for gain in self.gains],
        }
