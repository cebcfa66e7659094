"""What an adapter does, in its own interpreter: it joins, it is proven, it measures every pass."""

import itertools
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stagebench.suite.contracts.case import Case
from stagebench.suite.plan import Resolved, checks
from stagebench.suite.plan.checks import refusal
from stagebench.suite.plan.resolve import measurable
from stagebench.suite.plugins import launchers, workloads
from stagebench.suite.processes.attempt import Limits, in_one_go
from stagebench.suite.proofs.every_adapter import TEXT, TOKENS, behaving, probed
from stagebench.suite.proofs.make import PATIENCE, Proofs, configuration_of_proof
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.results.records import About, Record
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.session.observer import Observer
from stagebench.suite.session.resumable import Session, Settings
from stagebench.suite.worker.case_parts import Training
from stagebench.suite.worker.messages import Behaviour, HostUse, of_type
from stagebench.suite.worker.pass_kinds import USUAL, USUAL_LOADS
from stagebench_conformance import probe
from stagebench_conformance.base import BRIEF, Conformance

EXCHANGING = {"compute_only", "comm_only"}
SQUARES = Case(
    "reference",
    "single",
    "mnist_small",
    passes=("train",),
    training=Training(epochs=3, held_out=0.25),
    batch=16,
    lr=0.02,
    momentum=0.9,
)
LEARNED = (0.36331, 0.0204053, 0.000378973)  # the reference's loss after each epoch of SQUARES
STRAYS = 0.01  # relative: float32 loses far less in so few steps, and one update that is skipped costs more


def squares(path: Path) -> None:
    """What SQUARES learns: a light square in one of ten places."""
    stream, labels = np.random.RandomState(0), np.arange(200) % 10
    images = stream.randint(0, 40, (200, 28, 28))
    for image, label in zip(images, labels, strict=True):
        image[14 * (label // 5) :, 5 * (label % 5) : 5 * (label % 5) + 5] += 200
    np.savez(path, images=images.astype(np.uint8), labels=labels)


def strayed(losses: list[float]) -> str:
    """Where the pass `train` left the way of native steps from the same weights on the same samples; "": nowhere."""
    for epoch, (loss, expected) in enumerate(zip(losses, LEARNED, strict=False), 1):
        if not abs(loss - expected) <= STRAYS * expected:
            return (
                f"train: the loss after epoch {epoch} is {loss:.5g}, native steps reach {expected:.5g}; is a step "
                "another one after `begin_training`, or a sample another one than `next_batch` is to read?"
            )
    return ""


def run(cases: list[Case], folder: Path, proofs: bool) -> RunFolder:
    """One session over the cases, as `stagebench run` has it."""
    found = RunFolder(folder)
    found.create(About())
    Session(found, [Resolved(case, None, "") for case in cases], {}, Observer(), Settings(proofs=proofs)).run()
    return found


def record_of(folder: RunFolder, case: Case) -> Record:
    """The first record of a case, which must be there."""
    found = folder.record(case.id, 0)
    assert found is not None
    return found


class Measured(Conformance):
    """Proofs and passes."""

    @pytest.mark.usefixtures("forked")
    def test_every_kind_of_layer_is_proven(self, lowered: Case, tmp_path: Path) -> None:
        """The probe network, staged and native, against the float64 oracle; the rate changes where it may."""
        case = probed(lowered, self.it())
        proof = Proofs({}).prove(case, self.launch(case, tmp_path), tmp_path)
        assert proof.passed, proof.reason

    @pytest.mark.usefixtures("forked")
    def test_every_kind_of_layer_over_tokens_is_proven(self, tmp_path: Path) -> None:
        """A small transformer of images on one device, and one of text by a strategy of several, if there is one.

        The second one's gradients are clipped, if the strategy does that. An adapter may have no such layers.
        """
        if not self.cases():
            pytest.skip(f"{self.adapter} is not proven against itself")
        cases = self.alone_and_together("sgd")
        infers = [case for case in self.cases() if case.infers]
        inferring = [(TEXT, case) for case in infers if case.strategy == infers[0].strategy][-1:]
        for number, (network, case) in enumerate([(TOKENS, cases[0]), (TEXT, cases[-1]), *inferring]):
            clipped = network is TEXT and self.it().strategy(case).clips
            case = probed(case, self.it(), network).on(clip_norm=float(clipped))
            why = refusal(self.it(), self.it().capabilities, case, network.graph(), launchers())
            if why:
                pytest.skip(why)
            folder = tmp_path / str(number)
            folder.mkdir()
            proof = Proofs({}).prove(case, self.launch(case, folder), folder)
            assert proof.passed, f"{case.strategy}: {proof.reason}"

    @pytest.mark.usefixtures("forked")
    def test_every_optimiser_is_proven(self, tmp_path: Path) -> None:
        """Beside SGD, which all else is proven with: by one device, and by a strategy of several.

        Without `every_pair` only the last one by several, too.
        """
        others = [name for name in self.it().capabilities.optimisers if name != "sgd"]
        if not others or not self.cases():
            pytest.skip(f"{self.adapter} declares no optimiser beside sgd")
        by_name = [self.alone_and_together(name) for name in others]
        fewer = [*(cases[:1] for cases in by_name[:-1]), by_name[-1]]
        for number, case in enumerate(itertools.chain(*(by_name if self.every_pair else fewer))):
            folder = tmp_path / str(number)
            folder.mkdir()
            case = case.on(workload=probe.PICTURES, graph_digest="")  # few layers: quick to compile
            proof = Proofs({}).prove(case, self.launch(case, folder), folder)
            assert proof.passed, f"{case.optimiser}, {case.strategy}: {proof.reason}"

    @pytest.mark.usefixtures("forked")
    def test_it_drops_out_predicts_and_steps_alone(self, trained: Case, tmp_path: Path) -> None:
        """The checks of `stagebench verify` that need no oracle."""
        proof = in_one_go(Proofs({}).behaving(trained, self.launch(trained, tmp_path), tmp_path))
        assert proof.passed, proof.reason

    @pytest.mark.usefixtures("forked")
    def test_two_threads_share_the_work(self, trained: Case, tmp_path: Path) -> None:
        """On one device of a CPU; an adapter that refuses two threads has none to share it."""
        adapter, strategy = self.it(), self.it().strategy(trained)
        placement = replace(trained.placement, threads=2)
        case = trained.on(placement=placement)
        if placement.device != "cpu" or strategy.distributed or strategy.several_devices:
            pytest.skip("the threads of several devices cannot be told apart")
        launch = self.launch(case, tmp_path)
        refused = checks.refusal(adapter, adapter.capabilities, case, launch.workload.graph(), launchers())
        if refused or len(os.sched_getaffinity(0)) < 2:
            pytest.skip(refused or "two threads at once take two cores")
        proven, task = behaving(configuration_of_proof(case, adapter, launch.workload), adapter, ["threads"])
        launch = replace(launch, configuration=proven, limits=Limits(PATIENCE, PATIENCE, joining_s=60.0))
        attempt = launch.run(tmp_path, task)
        assert attempt.outcome == "ok", attempt.reason
        (behaviour,) = of_type(Behaviour, attempt.messages[0])
        assert not behaviour.problems, "; ".join(behaviour.problems)

    @pytest.mark.usefixtures("forked")
    def test_it_learns(self, tmp_path: Path) -> None:
        """The pass `train`: squares in ten places, which three epochs tell apart."""
        if not self.it().capabilities.real_data or not self.cases():
            pytest.skip(f"{self.adapter} declares that it reads no data")
        squares(tmp_path / "squares.npz")
        asked = {name: getattr(SQUARES, name) for name in ("workload", "passes", "training", "batch", "lr", "momentum")}
        case = self.plain().on(sampling=BRIEF, data=str(tmp_path / "squares.npz"), **asked)
        self.launch(case, tmp_path)
        found = record_of(run([case], tmp_path / "run", proofs=False), case)
        assert found.outcome == "ok", found.reason
        training = found.ranks[0].training
        assert training is not None
        assert [epoch.samples for epoch in training.epochs] == [144, 160, 144]  # of 150: batches run across the borders
        losses = [loss for loss in training.losses if loss is not None]
        assert len(losses) == len(training.losses)
        assert losses[-1] < 0.2 * losses[0]
        assert training.epochs[-1].accuracy > 0.9
        problem = strayed([epoch.loss for epoch in training.epochs if epoch.loss is not None])
        assert not problem, problem

    @pytest.mark.usefixtures("forked")
    def test_several_ranks_learn_what_one_learns(self, several: Case, tmp_path: Path) -> None:
        """An epoch of the same: the batches of the ranks, joined, are those of one device."""
        if not self.it().capabilities.real_data:
            pytest.skip(f"{self.adapter} declares that it reads no data")
        squares(tmp_path / "squares.npz")
        asked = {name: getattr(SQUARES, name) for name in ("passes", "lr", "momentum")}
        training = SQUARES.training._replace(epochs=1)
        batch = SQUARES.batch // several.placement.device_count
        data = str(tmp_path / "squares.npz")
        case = several.on(sampling=BRIEF, data=data, batch=batch, training=training, **asked)
        self.launch(case, tmp_path)
        found = record_of(run([case], tmp_path / "run", proofs=False), case)
        assert found.outcome == "ok", found.reason
        assert len(found.ranks) == case.placement.ranks
        trained = [rank.training for rank in found.ranks if rank.training is not None]
        losses = [training.epochs[-1].loss or math.nan for training in trained]
        problem = strayed([sum(losses) / len(found.ranks)])
        assert not problem, problem

    @pytest.mark.usefixtures("forked")
    def test_it_is_proven_and_measures_every_pass_that_has_something_to_measure(
        self, case: Case, tmp_path: Path
    ) -> None:
        """On mnist_small, on several devices where it can; what the strategy cannot tell apart is not asked for.

        Without `every_pair`, a pair that is proven on the probe network, which has all of mnist_small's layers, is
        not proven again.
        """
        self.launch(case, tmp_path)
        prove = self.every_pair or case not in self.lowered()
        strategy = self.it().capabilities.strategy(case.strategy)
        case = self.spread(case).on(sampling=BRIEF, passes=measurable(strategy, USUAL))
        folder = run([case], tmp_path / "run", proofs=prove)
        found = record_of(folder, case)
        assert found.outcome == "ok", found.reason
        if prove:
            assert found.proof is not None, found.proof_reason
            proof = folder.proofs()[found.proof]
            assert proof.passed, proof.reason
        assert len(found.ranks) == case.placement.ranks
        for rank in found.ranks:
            self._look_at(rank, case)
            measured, first = (each.passes[case.speed_pass] for each in (rank, found.ranks[0]))
            if not measured.own_pace:
                assert len(measured.step_s) == len(first.step_s)

    @pytest.mark.usefixtures("forked")
    def test_it_reads_data_in_a_pass_of_its_own(self, tmp_path: Path) -> None:
        """An array file of the network's shape: `io_only` is measured, and what reading adds to native steps."""
        if not self.it().capabilities.real_data or not self.cases():
            pytest.skip(f"{self.adapter} declares that it reads no data")
        asked = ("native", "resident", "io_only")
        case = self.plain().on(sampling=BRIEF, passes=asked, data=str(tmp_path / "noise.npz"))
        noise = np.random.RandomState(1)
        images = noise.randint(0, 256, (64, 28, 28)).astype(np.uint8)
        np.savez(case.data, images=images, labels=noise.randint(0, 10, 64))
        self.launch(case, tmp_path)
        found = record_of(run([case], tmp_path / "run", proofs=False), case)
        assert found.outcome == "ok", found.reason
        passes = found.ranks[0].passes
        assert set(passes) == set(asked)
        assert len(passes["native"].io_s or ()) == len(passes["native"].step_s)
        assert all(min(pair) > 0 for pair in passes["resident"].pairs_s or [(0.0, 0.0)])

    def _look_at(self, rank: Rank, case: Case) -> None:
        """One rank's record: passes, world, devices, versions."""
        expected = {*USUAL_LOADS} if case.infers else {"native", "staged"}
        if case.placement.device_count > 1:
            expected |= EXCHANGING & set(case.passes)
            if "comm_only" not in case.passes:  # where the exchange has no stage of its own, it may not be left out
                expected -= {name for name in ("compute_only",) if "not measured" in str(rank.notes.get(name))}
        assert set(rank.passes) == expected, rank.notes
        assert rank.memory is not None
        assert rank.memory.host_bytes > 10**7
        assert rank.noise is not None
        assert rank.noise.native is not None
        # The meter is read around the pass: how long after it, the machine's load decides.
        assert rank.noise.native.seconds >= 0.99 * rank.passes[case.speed_pass].wall_s
        self._threads_of(rank.noise.native, case)
        assert rank.joined is not None
        assert rank.joined.world == case.placement.ranks
        assert rank.joined.devices == case.placement.devices
        assert rank.joined.versions
        if not case.infers:
            self._look_at_stages(rank)
            self._look_at_layers(rank, case)

    def _look_at_stages(self, rank: Rank) -> None:
        staged = rank.passes["staged"]
        spans = staged.spans_s or []
        assert len(spans) == len(staged.pairs_s or ()) > 0
        late = [begin - end for (_, end), (begin, _) in itertools.pairwise(spans)]
        assert min(late, default=0.0) > -2 * (staged.clock_error_s or 0.0), "the group's `maximum` loses digits"

    def _look_at_layers(self, rank: Rank, case: Case) -> None:
        """All of them in the graph's order, each with what it exchanges; or the reason why they are not timed."""
        if rank.layers is None:
            assert str(rank.notes.get("layers")).startswith("not timed: "), rank.notes
            return
        *rows, losses = rank.layers
        graph = workloads()[case.workload].graph()
        itemsize = 8 if case.precision == "float64" else 4
        expected = [(layer.name, layer.gradient_bytes(itemsize)) for layer in graph.layers]
        assert [(row.layer, row.bytes) for row in rows] == expected
        assert (losses.layer, losses.bytes) == ("loss", 0)
        assert sum(row.forward_s for row in rows) > 0
        weighted = [row for row in rows if row.bytes]
        assert all(row.forward_s > 0 and row.backward_s > 0 for row in weighted)
        assert len({row.ready_s is None for row in weighted}) == 1, "it can say when gradients are complete, or cannot"

    def _threads_of(self, use: HostUse, case: Case) -> None:
        """By processor time: a busy machine makes the share smaller, never larger."""
        asked = case.placement.threads * case.placement.device_count
        if use.own_cpu_s is not None:
            assert use.own_cpu_s <= 1.25 * asked * use.seconds + 0.05, (
                f"{use.own_cpu_s / use.seconds:.2f} processors were busy, {asked} threads were asked for; how does the "
                "trainer's `start` set them?"
            )
