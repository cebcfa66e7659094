"""The learning rate's way through a training, as factors."""

import pytest
import toy

from suite.worker.case_parts import Schedule
from suite.worker.job import MakeOracle, Prove
from suite.worker.messages import Proof
from suite.worker.training import Training
from tests.support import trainers
from tests.support.jobs import graph


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Schedule(), [1.0] * 9),
        (Schedule(1.0), [1 / 3, 2 / 3, 1.0] + [1.0] * 6),
        (Schedule(decay="steps"), [1.0] * 3 + [0.1] * 3 + [0.01] * 2 + [0.001]),
        (Schedule(decay="linear"), [1 - step / 9 for step in range(9)]),
        (Schedule(1.0, "cosine"), [1 / 3, 2 / 3, 1.0, 1.0, 0.93301, 0.75, 0.5, 0.25, 0.06699]),
        (Schedule(100.0, "cosine"), [(step + 1) / 9 for step in range(9)]),
    ],
)
def test_a_rate_rises_over_the_warm_up_and_falls_by_its_decay(schedule, factors):
    assert [schedule.factor(step, 9, 3.0) for step in range(9)] == pytest.approx(factors, abs=1e-5)
    assert schedule.changing == (schedule != Schedule())


def test_a_training_sets_the_rate_before_every_step():
    rates = []
    trainer = toy.ToyTrainer(trainers.setup(batch=5))
    trainer.open_input, trainer.set_learning_rate = lambda source: None, rates.append
    training = Training(trainer, graph(), lambda **progress: None)
    training.run(toy.Numbers(20), toy.Numbers(5), 2, Schedule(0.5, "linear"))
    rate = trainer.setup.optimiser.lr
    assert rates == pytest.approx([rate * factor for factor in (1 / 2, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6)])
    training.run(toy.Numbers(20), toy.Numbers(5), 2)
    assert len(rates) == 8, "one rate throughout is never set"


@pytest.mark.parametrize("changing", [True, False])
def test_a_proof_of_changing_rates_catches_who_keeps_one(make_job, work, tmp_path, changing):
    oracle = tmp_path / "oracle"
    oracle.mkdir()
    assert work(make_job(MakeOracle(graph(), str(oracle), 4), changing_rate=True))[0] == 0
    code, sent = work(make_job(Prove(graph(), str(oracle), 4), changing_rate=changing))
    assert code == 0
    (proof,) = (each for each in sent if isinstance(each, Proof))
    worst = max(proof.errors["native movement"].values())
    assert (worst < 1e-6) if changing else (worst > 0.1)
