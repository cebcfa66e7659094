"""A training asked about, and what the model answers: every size and schedule, what was measured, what would help."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from suite.analysis.stats import Interval
from suite.predict.prediction import Prediction, predict
from suite.predict.scenario import Scenario
from suite.predict.what_if import Gain, helps


@dataclass(frozen=True)
class Asked:
    """A training, where the parts of its scenario come from in words, and its measured samples/s by device count."""

    label: str
    scenario: Scenario
    sources: tuple[str, ...]
    measured: dict[int, Interval]
    fitted_to: int | None = None  # devices; what was measured on as many says nothing of the model


@dataclass(frozen=True)
class Answer:
    """The predictions, sizes first; gains on the largest size."""

    asked: Asked
    predictions: tuple[Prediction, ...]
    gains: tuple[Gain, ...]

    def error(self, one: Prediction) -> float | None:
        """Predicted over measured samples/s, less 1; None where nothing was measured."""
        found = self.asked.measured.get(one.ranks)
        return one.rate / found.value - 1 if found else None

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


def answer(asked: Asked, schedules: Sequence[str], sizes: Sequence[int]) -> Answer:
    """RequestError for a schedule or a size that there is not."""
    scenarios = [asked.scenario.but(schedule=name) for name in schedules]
    predictions = tuple(predict(scenario, ranks) for ranks in sizes for scenario in scenarios)
    return Answer(asked, predictions, tuple(helps(scenarios[0], max(sizes))))
