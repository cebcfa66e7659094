"""Conformance on CUDA, of every adapter that declares it: `tox run -e gpu`.

An adapter whose framework does not start there is skipped, in its own words: no driver, a build without CUDA. What
needs more cards than this machine has is left out, and named.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from stagebench_conformance import AdapterConformance

from suite.contracts.adapter import Adapter
from suite.contracts.case import Case
from suite.environments.find import find
from suite.errors import Unavailable
from suite.launching.trial import look
from suite.plugins import adapters
from suite.proofs.make import Proofs
from suite.worker.machine import gpus

CARDS = len(gpus()[0])
# What exchanges through host memory, by adapter: several ranks on one card show that it is right, not how fast it is.
THROUGH_HOSTS = {
    "pytorch": ("ddp", "accumulate", "zero1"),
    "caffempi": ("data_parallel", "two_level", "parameter_server"),
}


class OnGPUs(AdapterConformance):
    """The whole suite, as far as the cards go."""

    device = "cuda"

    def cases(self) -> list[Case]:
        return [case for case in super().cases() if case.placement.device_count <= CARDS]

    def alone_and_together(self, optimiser: str) -> list[Case]:
        return [case for case in super().alone_and_together(optimiser) if case.placement.device_count <= CARDS]

    def spread(self, case: Case) -> Case:
        return super().spread(case) if CARDS > 1 else case

    @pytest.mark.usefixtures("forked")
    def test_ranks_that_share_a_card_are_proven(self, tmp_path: Path) -> None:
        names = THROUGH_HOSTS.get(self.adapter, ())
        if not names:
            pytest.skip("no strategy of it exchanges through host memory")
        proven = set()
        for case in super().cases():
            if case.strategy in names and case.tuning == "tuned":
                proven.add(case.strategy)
                place = replace(case.placement, ranks_per_node=2, devices=1, share_devices=True)
                shared, folder = case.on(placement=place), tmp_path / case.strategy
                folder.mkdir()
                proof = Proofs({}).prove(shared, self.launch(shared, folder), folder)
                assert proof.passed, f"{case.strategy}: {proof.reason}"
        assert proven == set(names)

    def test_its_own_refusals_say_why(self) -> None:
        """Looked at on CPUs: some are theirs."""

    def test_there_are_cards_for_every_strategy(self) -> None:
        left_out = sorted({case.strategy for case in super().cases()} - {case.strategy for case in self.cases()})
        if left_out:
            pytest.skip(f"unproven with {CARDS} card{'s' * (CARDS != 1)}: {', '.join(left_out)}")


def missing(adapter: Adapter) -> str | None:
    """Why its framework does not start on CUDA here; None where it does."""
    if not CARDS:
        return "nvidia-smi lists no card"
    try:
        return look(adapter, find(adapter), ["cuda"]).problems.get("cuda")
    except Unavailable as error:
        return f"{error}; {adapter.remedy}"


PROBLEMS = {name: missing(each) for name, each in sorted(adapters().items()) if "cuda" in each.capabilities.devices}
for _name, _problem in PROBLEMS.items():
    if _problem is None:
        globals()[f"Test_{_name}"] = type(f"Test_{_name}", (OnGPUs,), {"adapter": _name})


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_starts_on_cuda(name: str) -> None:
    if PROBLEMS[name]:
        pytest.skip(f"{name}: {PROBLEMS[name]}")
