"""Servers beside the ranks: waiting for all of them, or for nobody."""

import pytest
import torch

from adapters.pytorch.servers import shares_of
from workloads.build import Builder


def network():
    b = Builder("small", (2, 8, 8), 5)
    x = b.relu("r1", b.conv_bn("c1", "input", 4, 3, pad=1))
    x = b.relu("r2", b.conv("c2", x, 4, 3, pad=1))
    b.head(b.dense("fc", b.flatten("flat", x), 5))
    return b.graph


@pytest.mark.parametrize(("tuning", "optimiser"), [("tuned", "sgd"), ("default", "adam")])
def test_servers_that_wait_are_proven(proven, tuning, optimiser):
    proven(network(), strategy="parameter_server", tuning=tuning, optimiser=optimiser)


def test_alone_the_other_way_is_the_same(proven):
    proven(network(), world=1, strategy="parameter_server", mode="async")


def test_servers_that_do_not_wait_say_how_stale_weights_were(ranks):
    found = ranks("train", network(), batch=8, strategy="parameter_server", mode="async")
    for each in found:
        stale = each["notes"]["staleness"]
        assert stale["steps"] == 8
        assert stale["max"] <= 8
        assert each["losses"][-1] < each["losses"][0]
    # Whoever pushes last has seen all eight of the other's come.
    assert sum(each["notes"]["staleness"]["mean"] * 8 for each in found) > 7.9


def test_shares_are_even():
    tensors = [torch.zeros(n) for n in (100, 10, 60, 30)]
    assert shares_of(tensors, 2) == [[0], [1, 2, 3]]
    assert shares_of(tensors[:1], 2) == [[0], []]
