"""Ways that share out the optimiser's state or the parameters, and one that meets now and then."""

import numpy as np
import pytest

from workloads.build import Builder


def network():
    b = Builder("small", (2, 8, 8), 5)
    x = b.relu("r1", b.conv_bn("c1", "input", 4, 3, pad=1))
    b.head(b.dense("fc1", b.flatten("f1", x), 5), 0.3)
    b.head(b.dense("fc2", b.flatten("f2", b.dropout("d", b.max_pool("p", x, 2, 2), 0.5)), 5))
    return b.graph


@pytest.mark.parametrize(
    ("strategy", "optimiser", "tuning"),
    [("zero1", "sgd", "tuned"), ("zero1", "adam", "default"), ("fsdp", "sgd", "tuned"), ("fsdp", "adam", "default")],
)
def test_it_is_proven(proven, strategy, optimiser, tuning):
    proven(network(), strategy=strategy, optimiser=optimiser, tuning=tuning)


def test_local_sgd_parts_and_meets(ranks, tmp_path):
    found = ranks("train", network(), batch=8, strategy="local_sgd", period=7)  # eight steps: the last one averages
    assert found[0]["losses"][-1] < found[0]["losses"][0]
    assert found[0]["notes"]["local_sgd"] == "models averaged after the steps 1, 8, 15, ..."
    assert found[0]["losses"][3] != found[1]["losses"][3]
    ours, theirs = (np.load(tmp_path / f"trained-{rank}.npz") for rank in range(2))
    for name in ours.files:
        assert np.array_equal(ours[name], theirs[name]) == ("running" not in name), name


def test_one_rank_is_plain_sgd(proven):
    proven(network(), world=1, strategy="local_sgd")
