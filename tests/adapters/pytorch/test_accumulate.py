"""Gradients summed up over the pieces of a batch."""

import pytest

from workloads.build import Builder


def network():
    b = Builder("small", (2, 8, 8), 5)
    x = b.relu("r1", b.conv_bn("c1", "input", 4, 3, pad=1))
    b.head(b.dense("fc1", b.flatten("f1", x), 5), 0.3)
    b.head(b.dense("fc2", b.flatten("f2", b.dropout("d", b.max_pool("p", x, 2, 2), 0.5)), 5))
    return b.graph


@pytest.mark.parametrize(("world", "tuning"), [(1, "default"), (2, "default"), (2, "tuned")])
def test_it_is_proven(proven, world, tuning):
    proofs = proven(network(), world, pieces=4, strategy="accumulate", microbatches=4, tuning=tuning)
    assert proofs[0]["joined"][2] == ("gloo" if world > 1 else "none")


def test_it_learns(ranks):
    found = ranks("train", network(), batch=8, strategy="accumulate", microbatches=2)
    for each in found:
        assert each["losses"][-1] < each["losses"][0]
        assert each["notes"]["microbatches"] == 2
