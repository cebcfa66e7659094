"""A training asked about, and what the model answers: every size and schedule, what was measured, what would help."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from suite.analysis.stats import Interval
from suite.errors import RequestError
from suite.predict.in_stages import Pipelines
from suite.predict.prediction import Prediction, predict
from suite.predict.scenario import Scenario
from suite.predict.what_if import Gain, helps

TRUSTED = 0.1  # the greatest error of a prediction that is of use; docs/validation.md


@dataclass(frozen=True)
class Asked:
    """A training, where the parts of its scenario come from in words, and its measured samples/s by device count."""

    label: str
    scenario: Scenario
    sources: tuple[str, ...]
    measured: dict[int, Interval]
    fitted_to: int | None = None  # devices; what was measured on as many says nothing of the model
    cases: tuple[str, ...] = ()  # ids of those measured
    together: int | None = None  # samples of all devices (strong scaling); None: each has the scenario's batch
    pipelines: Pipelines | None = None  # how devices hold the network in stages; None: as the scenario says, or not
    link_known: bool = (
        True  # False: what is left of a pipeline's step stands for it, which tells nothing of an exchange
    )

    def refusal(self, ranks: int) -> str | None:
        """Why there cannot be so many ranks, with the remedy; None where there can."""
        if self.together and ranks > self.together:
            return f"there are only {self.together} samples; ask for {self.together} at most"
        samples = Fraction(self.together, ranks) if self.together else Fraction(self.scenario.batch)
        return self.pipelines.refusal(ranks, samples) if self.pipelines else None

    def on(self, ranks: int, schedule: str) -> Scenario:
        """The scenario of so many ranks; what a sample takes is taken not to depend on the batch.

        RequestError where there cannot be so many.
        """
        refusal = self.refusal(ranks)
        if refusal:
            raise RequestError(f"{self.label} on {ranks} ranks: {refusal}")
        scenario = self.scenario.but(schedule=schedule)
        if not self.pipelines:
            return self._shared(scenario, ranks)
        return self.pipelines.on(self._shared(scenario.but(microbatches=1), ranks), ranks)

    def alone(self, schedule: str) -> Scenario:
        """The scenario of one device, with the batch of all in strong scaling."""
        read = self.scenario.read / (self.scenario.stages if self.pipelines else 1)
        whole = {"stages": 1, "microbatches": 1, "borders": ()}
        return self._shared(self.scenario.but(schedule=schedule, read=read, **whole), 1)

    def _shared(self, scenario: Scenario, ranks: int) -> Scenario:
        return scenario.batched(self.together / ranks / scenario.batch) if self.together else scenario

    def changed(self, what: Sequence[str], **parts: Any) -> "Asked":
        """The same with parts of the scenario replaced: `what` in words. Nobody has measured that."""
        sources = (*self.sources, *(f"changed: {each}" for each in what))
        return replace(self, scenario=self.scenario.but(**parts), sources=sources, measured={}, fitted_to=None)


@dataclass(frozen=True)
class Answer:
    """Every size by every schedule; RequestError, once it is looked at, for one that there is not."""

    asked: Asked
    schedules: Sequence[str]
    sizes: Sequence[int]  # ranks

    @cached_property
    def predictions(self) -> list[Prediction]:
        """Sizes first."""
        return [self._predicted(ranks, name) for ranks in self.sizes for name in self.schedules]

    def _predicted(self, ranks: int, schedule: str) -> Prediction:
        found = predict(self.asked.on(ranks, schedule), ranks)
        if not (self.asked.together or self.asked.pipelines):
            return found
        # One rank by itself has the whole batch, or the whole network.
        return replace(found, efficiency=found.rate / ranks / predict(self.asked.alone(schedule), 1).rate)

    @property
    def largest(self) -> Prediction:
        """On the most ranks, by the schedule that is the best there."""
        most = max(self.sizes)
        return max((one for one in self.predictions if one.ranks == most), key=lambda one: one.order)

    def scenario_of(self, one: Prediction) -> Scenario:
        return self.asked.on(one.ranks, one.schedule)

    @cached_property
    def gains(self) -> list[Gain]:
        """What would help the largest most."""
        return helps(self.scenario_of(self.largest), self.largest.ranks)

    def measured(self, one: Prediction) -> Interval | None:
        """Samples/s on as many devices, by the schedule that was fitted: of another one nothing was measured."""
        return self.asked.measured.get(one.ranks) if one.schedule == self.asked.scenario.schedule else None

    def error(self, one: Prediction) -> float | None:
        """Predicted over measured samples/s, less 1; None where nothing was measured."""
        found = self.measured(one)
        return one.rate / found.value - 1 if found else None

    def wrong(self, one: Prediction) -> bool:
        """Whether it is further from what was measured than a reader should trust."""
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
