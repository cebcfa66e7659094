"""How a framework holds a network in stages on any number of devices: its cuts, its microbatches, its replicas."""

from dataclasses import dataclass, field
from fractions import Fraction

from suite import plugins
from suite.contracts.adapter import Strategy
from suite.contracts.case import Configuration
from suite.plan.checks import INTO_STAGES
from suite.predict.scenario import Scenario
from suite.worker.contract import Unsupported
from workloads.graph import Graph


@dataclass(frozen=True)
class Pipelines:
    """Of one training."""

    graph: Graph
    cut: str  # how, one of INTO_STAGES
    stages: int | None  # of each of several pipelines; None: all devices hold one
    microbatches: Fraction
    by_stage: bool = False  # so many microbatches for each stage, instead of for a pipeline
    known: dict[int, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)  # borders, by stages

    def stages_on(self, ranks: int) -> int:
        """Of each pipeline on so many ranks."""
        return self.stages or ranks

    def pieces(self, ranks: int) -> Fraction:
        """Microbatches of a pipeline; a fraction where there can be none."""
        return self.microbatches * (self.stages_on(ranks) if self.by_stage else 1)

    def borders(self, ranks: int) -> tuple[int, ...]:
        """The layer that each stage begins with, by its place in the network; Unsupported where it cannot be cut."""
        count = self.stages_on(ranks)
        if count not in self.known:
            self.known[count] = tuple(stage.begin for stage in INTO_STAGES[self.cut](self.graph, count))
        return self.known[count]

    def refusal(self, ranks: int, samples: Fraction) -> str | None:
        """Why there cannot be so many ranks with so many samples each, with the remedy; None where there can."""
        stages, pieces = self.stages_on(ranks), self.pieces(ranks)
        if ranks % stages:
            return f"they are no whole number of pipelines of {stages} stages; ask for a multiple of {stages}"
        if stages == 1:
            return None
        if pieces.denominator > 1:
            words = f"{stages} stages would take {float(pieces):g} microbatches"
            return f"{words}, {self.microbatches} a stage; ask for a multiple of {self.microbatches.denominator}"
        if samples * stages % pieces:
            return (
                f"the {float(samples * stages):g} samples of {stages} stages do not divide into {pieces} microbatches; "
                "ask for a number of ranks with which they do"
            )
        try:
            self.borders(ranks)
        except Unsupported as error:
            return str(error)
        return None

    def on(self, scenario: Scenario, ranks: int) -> Scenario:
        """The scenario of so many ranks, for which there is no refusal; a batch of all stages is read at once."""
        stages = self.stages_on(ranks)
        read = scenario.read * stages / scenario.stages
        if stages == 1:
            return scenario.but(stages=1, microbatches=1, borders=(), read=read)
        return scenario.but(stages=stages, microbatches=int(self.pieces(ranks)), borders=self.borders(ranks), read=read)


def strategy_of(case: Configuration) -> Strategy | None:
    """What is installed here declares of its strategy; None where it is not here."""
    adapter = plugins.adapters().get(case.adapter)
    return adapter.capabilities.strategy(case.strategy) if adapter else None
