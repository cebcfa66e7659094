"""Conformance on CUDA, of every adapter that declares it: `tox run -e gpu`.

An adapter whose framework does not start there is skipped, in its own words: no driver, a build without CUDA. A test
that needs more cards than this machine has is skipped, and named. STAGEBENCH_ADAPTERS names adapters ("pytorch,jax").
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from stagebench_conformance import AdapterConformance
from stagebench_conformance.base import BRIEF
from stagebench_conformance.measured import SQUARES, record_of, run, squares

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import Unavailable
from stagebench.suite.plugins import adapters
from stagebench.suite.processes.interpreters import find
from stagebench.suite.processes.single import look
from stagebench.suite.proofs.make import Proofs
from stagebench.suite.proofs.wanted import cases_to_verify
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.worker.machine import gpus
from stagebench.suite.worker.pass_kinds import KERNELS

CHOSEN = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
CARDS = min(len(gpus()[0]), len(CHOSEN) or len(gpus()[0]))
TOO_MANY = 2048  # of ResNet-50's samples: some 200 GB in float32, beside four batches of 1.2 GB
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

    @pytest.mark.usefixtures("forked")
    def test_every_number_format_is_proven(self, tmp_path: Path) -> None:
        """On mnist_small, by one device: float32, with which all else is proven, beside the others."""
        plain, can, unlike = self.tuned(), self.it().capabilities, []
        for precision in (*can.precisions, *can.device_precisions.get(self.device, ())):
            folder = tmp_path / precision
            folder.mkdir()
            case = plain.on(precision=precision)
            proof = Proofs({}).prove(case, self.launch(case, folder), folder)
            unlike += [] if proof.passed else [f"{precision}: {proof.reason}"]
        assert not unlike, "; ".join(unlike)

    @pytest.mark.usefixtures("forked")
    def test_a_group_of_one_exchanges_with_itself_and_is_proven(self, tmp_path: Path) -> None:
        """Each strategy of several ranks, by one on one card: its library is set up, and called."""
        verdicts = {}
        for case, refused in cases_to_verify(replace(self._wanted(), devices=1, tunings=[self.tuned().tuning])):
            if self.it().strategy(case).distributed and refused is None:
                folder = tmp_path / case.strategy
                folder.mkdir()
                proof = Proofs({}).prove(case, self.launch(case, folder), folder)
                verdicts[case.strategy] = "" if proof.passed else proof.reason
        if not verdicts:
            pytest.skip("it has no strategy of several ranks that one can run alone")
        assert not any(verdicts.values()), verdicts

    @pytest.mark.usefixtures("forked")
    def test_what_is_deterministic_ends_alike(self, tmp_path: Path) -> None:
        if "deterministic" not in self.it().capabilities.knobs:
            pytest.skip(f"{self.adapter} has no setting for it")
        squares(tmp_path / "squares.npz")
        asked = {name: getattr(SQUARES, name) for name in ("passes", "training", "batch", "lr", "momentum")}
        plain = self.tuned()
        case = plain.on(data=str(tmp_path / "squares.npz"), knobs={**plain.knobs, "deterministic": "on"}, **asked)
        found = [record_of(run([case], tmp_path / name, proofs=False), case) for name in ("first", "second")]
        assert [each.outcome for each in found] == ["ok", "ok"], [each.reason for each in found]
        first, second = [[epoch.loss for epoch in each.ranks[0].training.epochs] for each in found]
        assert first == second

    def test_a_batch_too_large_for_the_card_is_out_of_memory(self, tmp_path: Path) -> None:
        """In this framework's words."""
        case = self.tuned().on(workload="resnet50", graph_digest="", batch=TOO_MANY, sampling=BRIEF, passes=("native",))
        self.launch(case, tmp_path)
        found = record_of(run([case], tmp_path / "run", proofs=False), case)
        assert found.outcome == "oom", f"{found.outcome}: {found.reason}"

    @pytest.mark.usefixtures("forked")
    def test_its_card_tells_what_it_does(self, tmp_path: Path) -> None:
        """By NVML, the one that it drives and nvidia-smi lists."""
        rank = self.looked_at(("native",), tmp_path)
        [use] = rank.noise.native.gpus
        assert rank.joined.device_ids == (use.uuid,)
        # What it lists are whole GPUs: a slice (MIG) is not among them.
        assert use.uuid.startswith("MIG-") or any(use.uuid in named for named in gpus()[0]), gpus()[0]
        assert use.memory_bytes > 10**7

    @pytest.mark.usefixtures("forked")
    def test_its_profiler_sees_the_kernels_of_the_stages(self, tmp_path: Path) -> None:
        rank = self.looked_at(("native", "staged", KERNELS), tmp_path)
        if "has no profiler of its kernels" in str(rank.notes.get(KERNELS)):
            pytest.skip(rank.notes[KERNELS])
        assert rank.kernels is not None, rank.notes
        assert {stage for stage, seconds in rank.kernels.stages.items() if seconds > 0.0} >= {"forward", "backward"}
        assert "kernel" in {row.kind for row in rank.kernels.rows}

    def looked_at(self, passes: tuple[str, ...], folder: Path) -> Rank:
        """The one rank of the tuned case."""
        case = self.tuned().on(sampling=BRIEF, passes=passes)
        self.launch(case, folder)
        found = record_of(run([case], folder / "run", proofs=False), case)
        assert found.outcome == "ok", found.reason
        [rank] = found.ranks
        return rank

    def tuned(self) -> Case:
        """The plain case in the adapter's last tuning."""
        return self.plain().on(tuning=self.it().capabilities.tunings[-1])

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


ASKED = [name for name in os.environ.get("STAGEBENCH_ADAPTERS", "").split(",") if name] or list(adapters())
PROBLEMS = {name: missing(adapters()[name]) for name in ASKED if "cuda" in adapters()[name].capabilities.devices}
for _name, _problem in PROBLEMS.items():
    if _problem is None:
        globals()[f"Test_{_name}"] = type(f"Test_{_name}", (OnGPUs,), {"adapter": _name})


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_starts_on_cuda(name):
    if PROBLEMS[name]:
        pytest.skip(f"{name}: {PROBLEMS[name]}")
