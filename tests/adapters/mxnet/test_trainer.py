"""The trainer on one rank: proofs, several devices, machine, what the loop needs."""

import mxnet as mx
import numpy as np
import pytest

from stagebench.adapters.mxnet import machine
from stagebench.suite.worker.contract import Batch, Unavailable
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.adapters.alike import RULES, Alike, one_step
from tests.support import networks, trainers

STORES = ["kvstore_local", "kvstore_device"]


@pytest.mark.parametrize("strategy", STORES)
@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_devices_average_and_a_lone_step_does_not(trainer, strategy, tuning):
    graph = by_name()["mnist_small"].graph()
    ours = trainer(strategy=strategy, devices=2, tuning=tuning, batch=8)
    ours.build(graph, dict(weights.initial(graph)))
    batch = ours.to_device(synthetic(graph, 8, 1))
    assert [images.context for images, _ in batch] == [mx.cpu(0), mx.cpu(1)]
    ours.forward(batch)
    ours.backward()
    local = ours.gradients()
    ours.communicate()
    once = ours.gradients()
    for _ in range(200):  # as comm_only does: sums of sums would leave float32
        ours.communicate()
    assert "in place" in ours.notes()["exchange"]
    assert all(np.array_equal(once[name], values) for name, values in ours.gradients().items())
    assert not np.array_equal(once["fc2.bias"], local["fc2.bias"])
    ours.update()
    ours.step(batch)
    assert apart(ours) == 0.0
    ours.step_alone(batch)
    assert apart(ours) > 0.0


@pytest.mark.parametrize("strategy", STORES)
def test_devices_share_the_gradients_of_a_weight_that_two_layers_use(trainer, strategy):
    graph = networks.text()
    samples, found = synthetic(graph, 8, 1), {}
    for devices in (1, 2):
        ours = trainer(strategy=strategy, devices=devices, precision="float64", batch=8)
        found[devices] = one_step(ours, graph, samples)
    np.testing.assert_allclose(found[2][1]["table.weight"], found[1][1]["table.weight"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_layers_that_share_a_weight_are_timed_one_by_one(trainer, tuning):
    trainers.timed_layers(trainer(batch=8, tuning=tuning), networks.text())


@pytest.mark.parametrize("made", [np.asarray, lambda values: [mx.nd.from_numpy(values)]])
def test_tokens_stay_whole_beyond_what_float32_holds(trainer, made):
    ours = trainer(batch=2)
    ours.build(networks.text(), dict(weights.initial(networks.text())))
    tokens = np.full((2, 6), 2**24 + 1)
    ((placed, _),) = ours.to_device(Batch(made(tokens), np.zeros((2, 6))))
    np.testing.assert_array_equal(placed.asnumpy(), tokens)


def apart(trainer):
    """How far the two devices' weights are from each other."""
    pairs = [[data.asnumpy() for data in parameter.list_data()] for parameter in trainer._parameters]
    return max(float(np.abs(one - other).max()) for one, other in pairs)


def test_it_reports_devices_and_versions(trainer):
    joined = trainer(strategy="kvstore_local", devices=2, batch=4).start()
    assert (joined.rank, joined.world, joined.transport, joined.devices) == (0, 1, "none", 2)
    assert joined.versions["mxnet"] == mx.__version__
    assert "MKLDNN" in joined.versions["built with"]


@pytest.mark.parametrize(("lrn", "words"), [("composed", "took 1 / 1.4 of the time"), ("native", "is wrong")])
def test_notes_say_which_lrn_was_used_where_there_is_one(trainer, lrn, words):
    ours = trainer(lrn=lrn)
    for graph, there in ((networks.two_heads(), True), (by_name()["mnist_small"].graph(), False)):
        ours.build(graph, dict(weights.initial(graph)))
        assert ("lrn" in ours.notes()) == there
        assert words in ours.notes().get("lrn", words)
        assert "exchange" not in ours.notes()


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ("CUDA: Check failed: e == cudaSuccess: no kernel image is available", Unavailable, "no CUDA device.* to Ada"),
        ("CUDA: an illegal memory access was encountered", mx.MXNetError, "illegal memory access"),
    ],
)
def test_a_gpu_that_is_younger_than_the_wheel_is_said(monkeypatch, said, error, words):
    def ones(shape, ctx):
        raise mx.MXNetError(said)

    monkeypatch.setattr(mx.runtime.Features, "is_enabled", lambda self, name: True)
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 1)
    monkeypatch.setattr(mx.nd, "ones", ones)
    with pytest.raises(error, match=words):
        machine.contexts(trainers.setup(device="cuda"))


@pytest.mark.parametrize("steps", [1, 4])
def test_a_step_lasts_until_the_device_is_done(trainer, steps):
    """The time between two marks of the host alone would be that of asking for a step."""
    assert trainers.share_of_steps(trainer(batch=256), by_name()["mnist_small"].graph(), steps) > 0.9


def test_a_lone_step_counts_as_an_update_of_adam(trainer):
    graph = networks.one_convolution()
    ours, twice = (trainer(batch=4, precision="float64", optimiser=RULES["large"]) for _ in range(2))
    for each, steps in ((ours, ("step", "step_alone")), (twice, ("step", "step"))):
        each.build(graph, dict(weights.initial(graph)))
        batch = each.to_device(synthetic(graph, 4, 1))
        for name in steps:
            getattr(each, name)(batch)
    for name, values in ours.parameters().items():
        np.testing.assert_array_equal(values, twice.parameters()[name])


@pytest.mark.parametrize("strategy", ["single", *STORES])
@pytest.mark.parametrize(("tuning", "words"), [("default", "gluon.Trainer, "), ("tuned", "_update, one a parameter")])
def test_notes_name_the_optimiser_and_no_staleness(trainer, strategy, tuning, words):
    ours = trainer(strategy=strategy, tuning=tuning)
    ours.build(networks.one_convolution(), dict(weights.initial(networks.one_convolution())))
    ours.begin_training()
    assert words in ours.notes()["optimiser"]
    assert "staleness" not in ours.notes(), "nobody updates meanwhile"


class TestAlike(Alike):
    framework, library, module, words = "MXNet", "MXNet", "mxnet", "indexing of arrays in memory"
    timing = ({"tuning": "tuned"}, {"tuning": "default", "strategy": "kvstore_local", "devices": 2})
    updates = tuple(
        {"rule": rule, "precision": precision, "tuning": tuning, "strategy": strategy, "devices": devices}
        for rule, precision in (("large", "float32"), ("large", "float64"), ("sgd", "float64"), ("clipped", "float64"))
        for tuning in ("default", "tuned")
        for strategy, devices in (("single", 1), ("kvstore_local", 2), ("kvstore_device", 2))
    )
    exact, near = 2e-5, 1e-6  # rates and momenta are float32 in MXNet

    def devices(self):
        return mx.context.num_gpus()

    def draw(self):
        mx.nd.random.uniform(shape=(3,)).wait_to_read()

    def yardstick(self, ours):
        return machine.yardstick(ours.setup, ours._contexts)
