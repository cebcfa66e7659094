"""Strategies that share out the optimiser's state or the parameters, and one that averages now and then."""

import numpy as np
import pytest

from tests.support import networks, processes


@pytest.mark.parametrize(
    ("strategy", "optimiser", "tuning"),
    [("zero1", "sgd", "tuned"), ("zero1", "adam", "default"), ("fsdp", "sgd", "tuned"), ("fsdp", "adam", "default")],
)
def test_it_is_proven(proven, strategy, optimiser, tuning):
    proven(networks.two_heads(), strategy=strategy, optimiser=optimiser, tuning=tuning)


def test_local_sgd_trains_apart_and_averages(ranks, tmp_path):
    # Eight steps: the last one averages.
    found = ranks("train", networks.two_heads(), batch=8, strategy="local_sgd", period=7)
    assert found[0]["losses"][-1] < found[0]["losses"][0]
    assert found[0]["notes"]["local_sgd"] == "models averaged after the steps 1, 8, 15, ..."
    assert found[0]["losses"][3] != found[1]["losses"][3]
    ours, theirs = processes.saved_by(tmp_path, "trained")
    for name in ours:
        assert np.array_equal(ours[name], theirs[name]) == ("running" not in name), name


def test_one_rank_is_plain_sgd(proven):
    proven(networks.two_heads(), world=1, strategy="local_sgd")


def test_ranks_that_hold_dense_layers_together_stay_alike_where_units_are_dropped(ranks, tmp_path):
    """What every rank has whole is the same on all: each is given the same batch, and drops the same units."""
    found = ranks("train", networks.two_heads(), batch=8, strategy="tensor_parallel", model_parallel_size=2)
    assert found[0]["losses"] == found[1]["losses"]
    assert found[0]["losses"][0] != found[0]["losses"][5]
    assert found[0]["notes"]["tensor_parallel"] == "parallelize_module, 2 dense layers by columns"
    ours, theirs = processes.saved_by(tmp_path, "trained")
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
