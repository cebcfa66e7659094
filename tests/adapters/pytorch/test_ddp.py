"""DDP on two real ranks over gloo."""

from functools import partial

import numpy as np
import pytest

from stagebench.suite.worker.loop import BLOCK_STEPS
from stagebench.workloads.networks import by_name
from tests.support import networks, processes, proofs

MNIST = by_name()["mnist_small"]


def test_ddp_is_proven_as_a_static_graph(proven):
    options = {"batch": MNIST.proof_batch, "precision": "float32", "static_graph": True, "bucket_cap_mb": 1}
    found = proven(MNIST.graph(), **options)
    assert [proof["joined"] for proof in found] == [[0, 2, 1, "gloo"], [1, 2, 1, "gloo"]]


def test_the_exchange_averages_and_a_lone_step_does_not(ranks, tmp_path):
    found = ranks("exchange", MNIST.graph(), batch=MNIST.proof_batch)
    assert [each["maximum"] for each in found] == [1.0, 1.0]
    # A thread of gloo's that outlives the group may abort the process while it ends.
    for rank in range(2):
        left = (tmp_path / f"threads-{rank}.txt").read_text()
        assert left
        assert "gloo" not in left
        assert "tcpstore" not in left
    assert found[0]["notes"]["ddp"]["gradient_as_bucket_view"] is True
    assert found[0]["gradient_bytes"] == 4 * MNIST.graph().parameter_count
    proofs.assert_exchanged(partial(processes.saved_by, tmp_path))


@pytest.mark.parametrize(("asked", "count"), [("auto", 2), (25, 1), (1, 2)])
def test_the_staged_exchange_has_the_buckets_of_ddp(ranks, asked, count):
    for found in ranks("exchange", MNIST.graph(), batch=4, tuning="default", bucket_cap_mb=asked):
        assert found["buckets"]["ours"] == found["buckets"]["ddp"]
        assert len(found["buckets"]["ours"]) == count


@pytest.mark.parametrize(("tuning", "alike"), [("default", True), ("tuned", False)])
def test_buffers_that_ddp_sends_in_a_step_are_part_of_the_exchange(ranks, tmp_path, tuning, alike):
    ranks("exchange", networks.one_convolution(normalised=True), batch=4, tuning=tuning)
    staged = processes.saved_by(tmp_path, "staged")
    running = [name for name in staged[0] if "running" in name]
    assert running
    for name in running:
        assert np.array_equal(staged[0][name], staged[1][name]) == alike


def test_a_block_of_steps_sends_as_many_buffers_as_it_has_steps_and_one_without_exchange_none(ranks):
    for found in ranks("broadcasts", networks.one_convolution(normalised=True), batch=4, tuning="default"):
        assert found["sent"] == [BLOCK_STEPS, 0, BLOCK_STEPS]


def test_gradients_are_rounded_on_their_way(ranks, tmp_path):
    found = ranks("exchange", MNIST.graph(), batch=4, compression="fp16")
    assert found[0]["notes"]["compression"] == "fp16_compress_hook"
    assert found[0]["gradient_bytes"] == 2 * MNIST.graph().parameter_count
    local, shared, first = (processes.saved_by(tmp_path, name) for name in ("local", "shared", "whole"))
    distances = []
    for name in local[0]:
        average = local[0][name] / 2 + local[1][name] / 2
        distances.append(np.linalg.norm(shared[0][name] - average) / np.linalg.norm(average))
        np.testing.assert_array_equal(shared[0][name], shared[1][name])
        np.testing.assert_array_equal(first[0][name], first[1][name])
    assert 2e-5 < max(distances) < 1e-3  # rounded, and no more than that


def test_powersgd_keeps_the_ranks_together_and_learns(ranks, tmp_path):
    found = ranks("train", MNIST.graph(), batch=8, compression="powersgd", bucket_cap_mb=1)
    assert "bucket after bucket" in found[0]["notes"]["compression"]
    assert found[0]["losses"][-1] < found[0]["losses"][0]
    ours, theirs = processes.saved_by(tmp_path, "trained")
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])
