"""Two bits a number: what really reaches the others, what is kept, and what a lone device does."""

import mxnet as mx
import numpy as np
import pytest

from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support import processes

THRESHOLD = 0.02
WORDS = "2 bits a number, threshold 0.02 of the sum over a device's samples"
KNOBS = {"compression": "2bit", "threshold": THRESHOLD}


def quantised(sums):
    return np.where(sums >= THRESHOLD, THRESHOLD, np.where(sums <= -THRESHOLD, -THRESHOLD, 0.0))


def all_near(found, expected, samples, name):
    """Apart from numbers that lie on the threshold itself, which saving as a mean has rounded."""
    wrong = np.abs(found - expected) > 1e-6
    assert wrong.mean() < 1e-3, name
    assert np.abs(found - expected).max() < 1.01 * THRESHOLD / samples, name


@pytest.mark.parametrize(("strategy", "tuning"), [("dist_sync", "default"), ("dist_device_sync", "tuned")])
def test_servers_sum_what_was_compressed(run_group, tmp_path, strategy, tuning):
    found = run_group("exchange", tmp_path, strategy=strategy, tuning=tuning, **KNOBS)
    assert found[0]["notes"]["compression"] == WORDS
    share = by_name()["mnist_small"].proof_batch
    local, shared, staged, first = (
        processes.saved_by(tmp_path, name) for name in ("local", "shared", "staged", "whole")
    )
    sent = 0
    for name in local[0]:
        pushed = [quantised(own[name] * np.float32(share)) for own in local]
        sent += sum(np.count_nonzero(each) for each in pushed)
        all_near(shared[0][name], (pushed[0] + pushed[1]) / (2 * share), 2 * share, name)
        for result in (shared, staged, first):  # every worker is sent the same
            np.testing.assert_array_equal(result[0][name], result[1][name])
        assert not np.array_equal(staged[0][name], first[0][name])
    assert sent > 1000


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_devices_of_one_process_compress_each_its_own(trainer, tuning):
    ours = trainer(strategy="kvstore_device", tuning=tuning, devices=2, batch=8, **KNOBS)
    graph = by_name()["mnist_small"].graph()
    ours.build(graph, dict(weights.initial(graph)))
    placed = ours.to_device(synthetic(graph, 8, 1))
    ours.forward(placed)
    ours.backward()
    names = [name for name, _ in ours._net.trainable()]
    sums = {name: [each.asnumpy() for each in own] for name, own in zip(names, ours._local(), strict=True)}
    ours.communicate()
    for name, shared in ours.gradients().items():
        all_near(shared, (quantised(sums[name][0]) + quantised(sums[name][1])) / 8, 8, name)
    ours.update()
    before = ours.parameters()
    for _ in range(2):
        ours.step(placed)
    mx.nd.waitall()
    assert all(np.isfinite(values).all() for values in ours.parameters().values())
    assert any(not np.array_equal(before[name], values) for name, values in ours.parameters().items())
    assert ours.notes()["compression"] == WORDS
    assert ours.gradient_bytes() == -(-graph.parameter_count // 4)


def test_what_was_not_sent_is_sent_later(trainer):
    """Of gradients that are all below the threshold nothing is sent, until their sum is above it."""
    ours = trainer(strategy="kvstore_device", devices=2, batch=8, compression="2bit", threshold=1e-2)
    graph = by_name()["mnist_small"].graph()
    ours.build(graph, dict(weights.initial(graph)))
    ours.forward(ours.to_device(synthetic(graph, 8, 1)))
    ours.backward()
    name, parameter = ours._net.trainable()[0]
    received = []
    for _ in range(3):
        for array in parameter.list_grad():
            array[:] = 4e-3
        ours._summed = False
        ours.communicate()
        received.append(ours.gradients()[name].max() * 8)
    assert received == pytest.approx([0.0, 0.0, 2e-2])


def test_asynchronous_workers_compress_too_and_their_staleness_is_counted(run_group, tmp_path):
    found = run_group("train", tmp_path, strategy="dist_async", **KNOBS)
    counts = [each["notes"]["staleness"] for each in found]
    assert counts[1]["steps"] == 2 * counts[0]["steps"]
    assert counts[0]["mean"] > 0
    assert all(np.isfinite(each["loss"]) for each in found)
    assert found[0]["notes"]["compression"] == WORDS


def test_a_lone_worker_sends_whole_gradients(run_group, tmp_path):
    (found,) = run_group("exchange", tmp_path, workers=1, strategy="dist_sync", **KNOBS)
    assert found["notes"]["compression"] == "none: a lone device's gradients stay whole"
    ((local,), (shared,)) = (processes.saved_by(tmp_path, name, world=1) for name in ("local", "shared"))
    for name in local:
        np.testing.assert_array_equal(local[name], shared[name])
