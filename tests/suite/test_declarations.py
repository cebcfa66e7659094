"""What follows from a strategy's and a knob's declaration alone, without a line of the plugin's."""

from pathlib import Path

import pytest

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import Adapter, Capabilities, Strategy
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.contracts.knobs import Knob, Need
from stagebench.suite.contracts.launcher import Launcher, Process, Request
from stagebench.suite.plan.checks import refusal
from stagebench.suite.plugins import adapters
from stagebench.suite.worker.case_parts import Schedule
from stagebench.suite.worker.pass_kinds import BY_NAME, KERNELS, LOSSES, PASS_KINDS, TRAIN, USUAL
from stagebench.suite.worker.passes import Passes
from stagebench.workloads.networks import by_name

START = ("alone", "together")
KNOBS = {
    "pieces": Knob(int, 2, "pieces of a batch"),
    "held": Knob(int, 2, "ranks of one network", least=2),
    "rounding": Knob(("none", "half"), "none", "of what is sent", relaxing=("half",)),
    "by": Knob(("auto", "mpi"), "auto", "who connects", mpi=("mpi", "Open MPI")),
    "size": Knob(
        (int, float), 1, "of what is sent", above=0, needs=(Need("rounding", ("half",), "whole has no size"),)
    ),
    "reach": Knob(("near", "far"), "near", "", needs=(Need("device", ("cuda",), "only GPUs reach", of=("far",)),)),
}


class Toy(Adapter):
    contract = 4
    name = "toy"
    capabilities = Capabilities(
        (
            Strategy("ddp", "", "", START, refuses={("device", "cuda"): "no GPUs", ("rounding", "half"): "no halves"}),
            Strategy("pipeline", "", "", START, model_parallel=True, microbatches="pieces"),
            Strategy("hybrid", "", "", START, model_parallel="held"),
            Strategy("blocks", "", "", START, synchronous=False, periodic=True),
            Strategy("mpi", "", "", START, mpi="MPICH", changing_rate=True, clips=True),
            Strategy("servers", "", "", START, keeps_rate="the servers update"),
        ),
        devices=("cpu", "cuda"),
        knobs=KNOBS,
        refuses={("precision", "int8"): "it has no scales"},
    )


class Start(Launcher):
    def __init__(self, name: str, mpi: bool) -> None:
        self.name, self.title, self.mpi = name, name, mpi

    def missing(self, placement: Placement, interpreter: Path) -> None:
        return None

    def processes(self, request: Request) -> list[Process]:
        return []


LAUNCHERS = {"alone": Start("alone", False), "together": Start("together", True)}


RISING = Schedule(warmup_epochs=2)


def case(strategy: str, ranks: int = 4, device: str = "cpu", launcher: str = "together", batch: int = 8, **asked):
    placement = Placement(ranks_per_node=ranks, device=device, launcher=launcher)
    return Case("toy", strategy, "mnist_small", placement, batch, knobs=knobs.values(KNOBS, asked))


def test_a_strategy_s_sizes_synchrony_and_wire_share_follow():
    found = [Toy().model_parallel_size(case(name, held=2)) for name in ("ddp", "pipeline", "hybrid")]
    assert found == [1, 4, 2]
    assert [Toy().microbatches(case(name, pieces=3)) for name in ("ddp", "pipeline")] == [1, 3]
    assert [Toy().synchronous(case("ddp", rounding=value)) for value in ("none", "half")] == [True, False]
    assert not Toy().synchronous(case("blocks"))
    found = [Toy().wire_share(case(name)) for name in ("ddp", "pipeline", "blocks")]
    assert found == [1 / 64, 0.0, 0.0]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (case("ddp"), None),
        (case("ddp", device="cuda"), "no GPUs"),
        (case("ddp", rounding="half"), "no halves"),
        (case("ddp").on(precision="int8"), "toy does not do precision 'int8': it has no scales; it does float32"),
        (case("blocks", rounding="half", size=2), None),
        (case("blocks", size=2), "size = 2 needs rounding = 'half': whole has no size"),
        (case("blocks", rounding="half", size=0), "size is 0, and must be above 0: of what is sent"),
        (case("blocks", reach="far"), "reach = 'far' needs device = 'cuda': only GPUs reach"),
        (case("blocks", device="cuda", reach="far"), None),
        (case("hybrid", ranks=3), "holds one network on 2 devices, and 3 do not divide"),
        (case("hybrid", held="two"), "wants int"),
        (case("pipeline", batch=8, pieces=5), "a batch of 32 does not divide into microbatches = 5 equal pieces"),
        (case("ddp", by="mpi"), None),
        (case("ddp", by="mpi", launcher="alone"), "ranks that 'alone' starts know of no MPI, by which toy/ddp meet"),
        (case("mpi", launcher="alone"), "take the launcher 'together'"),
        (case("blocks", launcher="alone"), None),
        (case("mpi").on(schedule=RISING), None),
        (case("servers").on(schedule=RISING), "toy/servers keeps one learning rate (the servers update); leave warmu"),
        (case("mpi").on(clip_norm=0.5), None),
        (case("servers").on(clip_norm=0.5), "clip_norm = 0.5 out of its block, or take another strategy (mpi)"),
    ],
)
def test_refusals_follow_from_the_declaration(asked, words):
    toy = Toy()
    found = refusal(toy, toy.capabilities, asked, by_name()["mnist_small"].graph(), LAUNCHERS)
    assert found is None if words is None else words in str(found)


def test_a_pass_has_a_runner_and_pairs_with_a_known_pass_and_a_strategy_that_keeps_its_rate_says_why():
    for kind in PASS_KINDS:
        assert kind.name in (KERNELS, TRAIN) or kind.infers or callable(getattr(Passes, f"_{kind.name}"))
        assert not kind.against or kind.against in BY_NAME
    assert USUAL == ("native", "staged", "resident", "compute_only", "comm_only", "io_only")
    assert LOSSES == ("native", "staged", "compute_only")
    declared = [each for adapter in adapters().values() for each in adapter.capabilities.strategies]
    assert [each.name for each in declared if each.changing_rate == bool(each.keeps_rate) and not each.infers] == []
