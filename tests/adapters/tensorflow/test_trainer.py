"""The trainer on one rank: proof, machine, what the loop needs."""

import numpy as np
import pytest
import tensorflow as tf

from adapters.tensorflow import kernels, machine
from suite.worker.contract import Batch, Unavailable, Unsupported
from suite.worker.feed import synthetic
from tests.support import proofs, trainers
from workloads import weights
from workloads.build import Builder
from workloads.networks import by_name

VARIANTS = [
    {"tuning": "default"},
    {"tuning": "tuned"},
    {"tuning": "tuned", "xla": "off"},
    {"tuning": "default", "xla": "step", "layout": "NCHW"},
    {"tuning": "tuned", "strategy": "mirrored"},
]


@pytest.mark.parametrize("options", VARIANTS, ids=lambda variant: "-".join(variant.values()))
def test_it_is_proven(trainer, small, oracle, options):
    proofs.assert_proven(small, proofs.prove(trainer(batch=8, **options), small, 8, oracle))


@pytest.mark.parametrize("options", VARIANTS[:2], ids=lambda variant: "-".join(variant.values()))
def test_in_float64_it_differs_from_the_oracle_by_its_storage_alone(trainer, small, oracle, options):
    proof = proofs.prove(trainer(precision="float64", batch=8, **options), small, 8, oracle)
    np.testing.assert_allclose(proof["losses"]["native"], proof["losses"]["oracle"], rtol=1e-12)
    assert max(proof["errors"]["gradient"].values()) < 1e-7
    assert max(proof["errors"]["native movement"].values()) < 1e-7


@pytest.mark.parametrize("wrong", [{"alpha": 0.5}, {"beta": 0.5}, {"size": 3}])
def test_a_wrong_normalisation_does_not_pass(trainer, small, oracle, monkeypatch, wrong):
    """The gate must see what a convention's slip in one layer does."""
    right = kernels.composed

    def slipped(size, alpha, beta, k, axis, compiled):
        said = dict({"size": size, "alpha": alpha, "beta": beta, "k": k}, **wrong)
        return right(axis=axis, compiled=compiled, **said)

    monkeypatch.setattr(kernels, "composed", slipped)
    proof = proofs.prove(trainer(batch=8), small, 8, oracle)
    assert max(proof["errors"]["gradient"].values()) > 1e-4


@pytest.mark.parametrize("name", ["alexnet", "googlenet", "resnet50", "mnist_small", "mnist_large"])
def test_it_counts_the_graphs_multiply_accumulates(trainer, name):
    graph = by_name()[name].graph()
    ours = trainer(tuning="default")
    ours.build(graph, {p.name: np.zeros(p.shape, np.float32) for p in graph.parameters})
    statistics = {key: value for key, value in ours.parameters().items() if "running" in key}
    assert ours.macs() == graph.macs
    after = ours.parameters()
    assert all(np.array_equal(value, after[key]) for key, value in statistics.items()), "counting runs nothing"


def test_training_with_dropout_learns(trainer, small):
    trainers.assert_learns(trainer(batch=8), small)


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_layers_are_timed_one_by_one(trainer, small, tuning):
    ours = trainer(batch=8, tuning=tuning)
    rows = trainers.timed_layers(ours, small)
    ready = [row.ready_s for row in rows if row.bytes]
    assert ready == sorted(ready, reverse=True)
    ours.xla = "step"
    with pytest.raises(Unsupported, match="XLA compiles"):
        ours.layer_times(None)


@pytest.mark.parametrize("xla", ["update", "step"])
def test_masks_of_dropout_follow_the_seed_and_the_rank_and_change_every_step(trainer, xla):
    b = Builder("drops", (1, 4, 4), 3)
    b.head(b.dense("fc", b.dropout("drop", b.flatten("flat", "input"), 0.5), 3))
    losses = []
    ours = trainer(batch=8, xla=xla)
    ours.setup = ours.setup._replace(optimiser=ours.setup.optimiser._replace(lr=0.0))
    for changes in ({}, {}, {"seed": 2}, {"rank": 1}):
        ours.setup = ours.setup._replace(**{"seed": 1, "rank": 0, **changes})
        ours.build(b.graph, dict(weights.initial(b.graph)))
        batch = ours.to_device(synthetic(b.graph, 8, 1))
        losses.append(tuple(ours.step(batch) or ours.loss() for _ in range(2)))
        tf.random.uniform([3])  # whatever else draws numbers
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3
    assert all(first != second for first, second in losses)


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_in_use_it_takes_running_statistics_and_drops_nothing(trainer, small, tuning):
    ours = trainer(batch=8, tuning=tuning)
    ours.build(small, dict(weights.initial(small)))
    batch = ours.to_device(synthetic(small, 8, 1))
    for _ in range(3):
        ours.step(batch)
    before = ours.parameters()
    found = ours.predict(batch)
    after = ours.parameters()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    np.testing.assert_array_equal(found, ours.predict(batch))
    alone = ours.to_device(Batch(*(np.repeat(each[:1], 8, 0) for each in synthetic(small, 8, 1))))
    np.testing.assert_allclose(ours.predict(alone)[0], found[0], rtol=1e-4)  # whatever else is in the batch
    ours.forward(batch)
    assert np.abs(ours.logits() - found).max() > 1e-2


def test_staged_and_native_take_the_same_steps_with_dropout(trainer, small):
    found = []
    ours = trainer(batch=8)
    for staged in (False, True):
        ours.build(small, dict(weights.initial(small)))
        batch = ours.to_device(synthetic(small, 8, 1))
        for _ in range(3):
            trainers.staged(ours, batch) if staged else ours.step(batch)
        found.append(ours.loss())
    np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="there is a device")
def test_a_missing_device_is_said(trainer):
    with pytest.raises(Unavailable, match=r"no CUDA device: TensorFlow .*, or ask for device = 'cpu'"):
        trainer(device="cuda")


def test_a_missing_meeting_place_is_said(trainer, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ValueError, match="MASTER_ADDR is not set"):
        trainer(strategy="multiworker_mirrored")


def test_tuning_decides_what_auto_means(trainer, small):
    for tuning, xla in (("tuned", "update"), ("default", "off")):
        ours = trainer(tuning=tuning)
        ours.build(small, dict(weights.initial(small)))
        assert ours.notes()["xla"] == xla
        assert ours.notes()["layout"] == "NHWC"


def test_it_reports_threads_and_versions(trainer):
    joined = trainer().start()
    assert (joined.rank, joined.world, joined.transport, joined.devices) == (0, 1, "none", 1)
    assert joined.versions["tensorflow"] == tf.__version__
    assert tf.config.threading.get_intra_op_parallelism_threads() == 1


def test_memory_of_all_of_a_rank_s_gpus_is_added_up(trainer, monkeypatch):
    ours = trainer()
    assert ours.peak_device_bytes() is None, "a CPU has no allocator of its own"
    peaks = {"GPU:0": {"current": 1, "peak": 100}, "GPU:1": {"current": 1, "peak": 1000}}
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", peaks.__getitem__)
    ours.setup = ours.setup._replace(device="cuda", devices=2)
    assert ours.peak_device_bytes() == 1100


def test_the_framework_s_own_yardstick_multiplies_and_copies(trainer):
    ours = trainer()
    yardstick = machine.yardstick(ours.setup, ours.devices)
    (product,), (copy,) = yardstick.product(16)(), yardstick.copy(64)()
    assert tuple(product.shape) == (16, 16)
    assert np.asarray(copy).nbytes == 64
    assert yardstick.library.startswith("TensorFlow ")
    assert ours.yardstick().library.startswith("NumPy ")  # which serves every framework alike on CPUs
