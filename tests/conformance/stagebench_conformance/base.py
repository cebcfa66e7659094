"""What every part of the suite stands on: the adapter under test, its cases, its known gaps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.contracts.launcher import usual
from stagebench.suite.errors import Unavailable
from stagebench.suite.plan.resolve import measurable
from stagebench.suite.plugins import adapters, launchers
from stagebench.suite.processes.launch import Launch
from stagebench.suite.proofs.wanted import Wanted, cases_to_verify
from stagebench.suite.session.cases import launch_of_case
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.pass_kinds import USUAL
from stagebench_conformance import probe, warm

BRIEF = Sampling(warmup_steps=5, warmup_limit=0.3, steps=3, seconds=0.1, processes=1, quick=True)
DEVICES = 2  # of every strategy that can have several


class Conformance:
    """Names the adapter. A part by itself can be used in place of the whole."""

    adapter: ClassVar[str] = ""
    device: ClassVar[str] = ""  # kind on which its cases run; empty: the first that it declares
    # Test name, or name[strategy-tuning]: why it cannot pass. One that passes all the same fails.
    gaps: ClassVar[Mapping[str, str]] = {}
    # What its `unsupported` refuses: (changes of a plain case, words of the answer).
    refusals: ClassVar[Sequence[tuple[dict[str, Any], str]]] = ()
    # What a machine without the framework means: an adapter is not proven where nothing ran, so "skip" is only for one
    # of many adapters, where another machine runs it.
    where_missing: ClassVar[Literal["fail", "skip"]] = "fail"
    # Prove both networks, the probe and mnist_small, in every pair of strategy and tuning, each optimiser on one device
    # and on several, every operation of each backend. False, to save time: each pair on one of them, those of `lowered`
    # on the probe; one optimiser on several; of backends with one communicator the first one whole.
    every_pair: ClassVar[bool] = True
    # Fork ranks from a process that has imported the framework, where their start and end is not the question.
    warm: ClassVar[bool] = False
    # ... but not its sidecars, where importing the framework is what serves.
    fresh_sidecars: ClassVar[bool] = False

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """A test that takes `case` runs for every strategy and tuning; the others are fewer."""
        kinds = {"case": self.cases, "lowered": self.lowered, "trained": self.trained, "several": self.several}
        for fixture, cases in kinds.items():
            if fixture in metafunc.fixturenames:
                metafunc.parametrize(fixture, cases(), ids=case_id)

    @pytest.fixture(autouse=True)
    def _known_gap(self, request: pytest.FixtureRequest) -> None:
        test = request.node.name.partition("[")[0]
        reason = self.gaps.get(request.node.name) or self.gaps.get(test)
        if reason:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.fixture(autouse=True)
    def _probe(self) -> None:
        probe.register()

    @pytest.fixture
    def forked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Used by what does not look at how processes begin and end."""
        if self.warm:
            warm.use(monkeypatch, sidecars=not self.fresh_sidecars)

    def test_every_gap_names_a_test(self) -> None:
        """And gives a reason."""
        for gap, reason in self.gaps.items():
            test, bracket, rest = gap.partition("[")
            assert hasattr(self, test), f"the gap {gap!r} names no test of this suite"
            taken = signature(getattr(self, test)).parameters
            named = next((name for name in ("lowered", "trained", "several") if name in taken), "cases")
            cases = getattr(self, named)()
            ids = [f"[{case_id(case)}]" for case in cases]
            assert not bracket or bracket + rest in ids, f"the gap {gap!r} names no case; there are {', '.join(ids)}"
            assert reason.strip(), f"the gap {gap!r} has no reason"

    def it(self) -> Adapter:
        """The adapter under test."""
        found = adapters()
        assert self.adapter in found, (
            f"no installed package brings an adapter {self.adapter!r} (there are {', '.join(found)}); "
            "install yours (pip install -e .) and look at its entry point in the group 'stagebench'"
        )
        return found[self.adapter]

    def plain(self) -> Case:
        """The first of everything that the adapter declares, on one device."""
        can, strategy = self.it().capabilities, self.it().capabilities.strategies[0]
        placement = Placement(launcher=usual(strategy, launchers()), device=self.device or can.devices[0])
        return Case(self.adapter, strategy.name, "mnist_small", placement, precision=can.precisions[0]).on(
            tuning=can.tunings[0], knobs=knobs.values(can.knobs), passes=measurable(strategy, USUAL)
        )

    def cases(self) -> list[Case]:
        """Every strategy and tuning on mnist_small that it does not refuse; none for the oracle itself.

        A strategy that cannot cut mnist_small is tried on the probe, which has branches.
        """
        if self.adapter not in adapters() or adapters()[self.adapter].oracle:
            return []
        return list(cases_of(self._wanted()))

    def lowered(self) -> list[Case]:
        """Every case; without `every_pair` the first strategy in every tuning, the others in their last."""
        found = self.cases()
        if self.every_pair:
            return found
        last = {case.strategy: case.tuning for case in found}
        return [case for case in found if case.strategy == found[0].strategy or case.tuning == last[case.strategy]]

    def trained(self) -> list[Case]:
        """Those of `lowered` that train."""
        return [case for case in self.lowered() if not case.infers]

    def several(self) -> list[Case]:
        """Several ranks of each strategy that is equivalent to one device with the joined batch; in its last tuning."""
        last = {case.strategy: case for case in self.cases() if case.workload == "mnist_small"}
        strategies = {strategy.name: strategy for strategy in self.it().capabilities.strategies} if last else {}
        trains = [case for case in last.values() if strategies[case.strategy].distributed and not case.infers]
        wanted = [case for case in trains if self.it().synchronous(case)]
        return [self.spread(case) for case in wanted]

    def spread(self, case: Case) -> Case:
        """The case on several ranks or devices where its strategy has them, even if it is proven on one."""
        strategy, placement = self.it().capabilities.strategy(case.strategy), case.placement
        if strategy is None or placement.device_count > 1 or not (strategy.distributed or strategy.several_devices):
            return case
        ranks, driven = (DEVICES, 1) if strategy.distributed else (1, DEVICES)
        return case.on(placement=replace(placement, ranks_per_node=ranks, devices=driven))

    def alone_and_together(self, optimiser: str) -> list[Case]:
        """Of the cases of an optimiser the last on one device, a tuned one, and the first on several; if any trains."""
        cases = [case for case, refused in cases_to_verify(self._wanted(optimiser)) if refused is None]
        cases = [case for case in cases if not case.infers] or cases
        alone = [case for case in cases if case.placement.device_count == 1]
        return alone[-1:] + [case for case in cases if case not in alone][:1]

    def _wanted(self, optimiser: str = "sgd") -> Wanted:
        device = self.device or self.it().capabilities.devices[0]
        return Wanted([self.adapter], ["mnist_small"], devices=DEVICES, device=device, optimiser=optimiser)

    def launch(self, case: Case, folder: Path) -> Launch:
        """The case with all that it needs; where this machine lacks it, `where_missing` holds, with the remedy."""
        try:
            return launch_of_case(case, {}, folder / "bundle")
        except Unavailable as error:
            if self.where_missing == "skip":
                pytest.skip(str(error))
            raise pytest.fail.Exception(str(error), pytrace=False) from None


def cases_of(wanted: Wanted) -> list[Case]:
    """The cases of `Conformance.cases`, looked for once: every test asks, and every worker that collects them."""
    key = (*wanted.adapters, wanted.device)
    if key not in _cases:
        probe.register()
        _cases[key] = []
        for workload in ("mnist_small", "probe"):
            there = {case.strategy for case in _cases[key]}
            asked = cases_to_verify(replace(wanted, workloads=[workload]))
            _cases[key] += [case for case, refused in asked if refused is None and case.strategy not in there]
    return _cases[key]


_cases: dict[tuple[str, ...], list[Case]] = {}


def case_id(case: Case) -> str:
    """strategy-tuning."""
    return f"{case.strategy}-{case.tuning}"
