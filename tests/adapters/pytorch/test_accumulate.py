"""Gradients summed up over the pieces of a batch."""

import pytest

from tests.support import networks


@pytest.mark.parametrize(("world", "tuning"), [(1, "default"), (2, "default"), (2, "tuned")])
def test_it_is_proven(proven, world, tuning):
    proofs = proven(networks.two_heads(), world, pieces=4, strategy="accumulate", microbatches=4, tuning=tuning)
    assert proofs[0]["joined"][-1] == ("gloo" if world > 1 else "none")


def test_it_learns(ranks):
    found = ranks("train", networks.one_convolution(normalised=True), batch=8, strategy="accumulate", microbatches=2)
    for each in found:
        assert each["losses"][-1] < each["losses"][0]
        assert each["notes"]["microbatches"] == 2
