"""Servers beside the ranks: waiting for all of them, or for nobody."""

import os

import numpy as np
import pytest
import torch

from stagebench.adapters.pytorch.comm import GLOO_INTERFACE
from stagebench.adapters.pytorch.servers import CALLS_INTERFACE, Clocks, Share, name_interface, shares_of
from stagebench.suite.worker.contract import SGD
from tests.support import networks, processes, trainers

LR, DECAY = 0.001, 1e-3  # as in rank.py, of SGD
STALE = 5  # as there


def test_servers_that_wait_are_proven_with_adam(proven):
    graph = networks.one_convolution(normalised=True)
    proofs = proven(graph, strategy="parameter_server", tuning="default", optimiser="adam")
    assert [proof["joined"] for proof in proofs] == [[rank, 2, 1, "tensorpipe"] for rank in range(2)]


def test_one_rank_is_the_same_asynchronously(proven):
    proven(networks.one_convolution(normalised=True), world=1, strategy="parameter_server", mode="async")


WAYS = [{"mode": "async"}, {"mode": "async", "staleness": 1}, {"backups": 1, "server_ranks": 1}]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_servers_that_do_not_wait_for_all_teach(ranks, monkeypatch, way):
    monkeypatch.setenv(GLOO_INTERFACE, "lo")  # the servers' calls go by it too
    found = ranks("train", networks.one_convolution(normalised=True), batch=8, strategy="parameter_server", **way)
    for each in found:
        assert each["losses"][-1] < each["losses"][0]
        assert "staleness" not in each["notes"], "it is a training's"


def test_a_push_is_a_share_of_the_global_batch(ranks, tmp_path):
    found = ranks(
        "push",
        networks.one_convolution(normalised=True),
        batch=8,
        strategy="parameter_server",
        mode="async",
        precision="float64",
    )
    local, before, after = (processes.saved_by(tmp_path, name)[0] for name in ("local", "before", "pushed"))
    for name in local:
        moved = LR * (local[name] / 2 + DECAY * before[name])
        np.testing.assert_allclose(after[name], before[name] - moved, rtol=0, atol=1e-15)
    assert all("global batch" in each["notes"]["servers"] for each in found)
    assert all("staleness" not in each["untrained"] for each in found), "it is a training's"
    # Rank 0 missed the push that rank 1 made before; rank 1 then waited for all of rank 0's.
    expected = [{"mean": 1 / STALE, "max": 1, "steps": STALE}, {"mean": STALE, "max": STALE, "steps": 1}]
    assert [each["turns"]["staleness"] for each in found] == expected
    stale = [each["notes"]["staleness"] for each in found]
    assert all(each["steps"] == 8 and each["max"] <= 8 + 1 for each in stale)
    # Whoever pushes last has seen the other's eight come, rank 0 also the one of rank 1's turn; but one less
    # where each is the last on a share: neither has seen the other's last one whole.
    assert 7 - 1e-6 < max(stale[0]["mean"] * 8 - 1, stale[1]["mean"] * 8) < 8 + 1e-6


@pytest.mark.parametrize("bound", [0, 2])
def test_no_process_gets_further_ahead_of_a_late_one_than_the_bound(ranks, bound):
    found = ranks(
        "lag", networks.one_convolution(), world=3, strategy="parameter_server", mode="async", staleness=bound
    )
    ended, late = [end for _, end in found[0]["times"]], [began for began, _ in found[-1]["times"]]
    for step in range(bound, len(ended)):
        assert ended[step] > late[step - bound] + found[-1]["late"], "before the late one's step that it waits for"


@pytest.mark.parametrize("settings", [{"mode": "async"}, {"backups": 1, "server_ranks": 1}], ids=str)
def test_no_process_waits_for_a_late_one_without_a_bound_or_with_a_backup(ranks, settings):
    found = ranks("lag", networks.one_convolution(), world=3, strategy="parameter_server", **settings)
    assert found[0]["times"][-1][1] < found[-1]["times"][0][1], "all steps are made before the late one's first"
    dropped = [each["notes"].get("dropped", 0) for each in found]
    assert (dropped[0] > 0) == ("backups" in settings), "what the late one sent came too late"
    assert dropped[1:] == [0, 0], "the only server is the first rank's"


def test_calls_go_by_the_interface_of_the_group(monkeypatch):
    for name in (GLOO_INTERFACE, CALLS_INTERFACE):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    name_interface()
    assert CALLS_INTERFACE not in os.environ
    monkeypatch.setenv(GLOO_INTERFACE, "eth1,eth2")
    name_interface()
    assert os.environ[CALLS_INTERFACE] == "eth1"
    monkeypatch.setenv(GLOO_INTERFACE, "eth3")
    name_interface()
    assert os.environ[CALLS_INTERFACE] == "eth1"


def share(**knobs):
    setup = trainers.setup(world=3, optimiser=SGD(1.0, 0.0, 0.0), knobs={"backups": 1, **knobs})
    return Share([torch.zeros(2)], setup)


def push(served, rank, step, value):
    return served.push_together(rank, step, [torch.full((2,), value)], True)


def test_backup_workers_are_not_waited_for_and_their_late_gradients_are_dropped():
    served = share()
    first = push(served, 0, 0, 1.0)
    assert not first.done()
    push(served, 2, 0, 3.0)
    [weights], steps, dropped = first.wait()
    assert (weights.tolist(), steps, dropped) == ([-2.0, -2.0], 1, False), "the mean over those who came"
    [weights], steps, dropped = push(served, 1, 0, 100.0).wait()
    assert (weights.tolist(), steps, dropped, served.dropped) == ([-2.0, -2.0], 1, True, 1)


def test_nobody_waits_for_workers_at_rest():
    served = share()
    waiting = push(served, 0, 0, 1.0)
    served.rest(1)
    assert not waiting.done(), "one of two others is still to come"
    served.rest(2)
    assert waiting.wait()[1] == 1
    served.rest(0)
    assert not push(served, 0, 1, 1.0).done(), "all have rested: a new start"


def test_a_worker_ahead_of_the_slowest_by_more_than_the_bound_waits():
    clocks = Clocks(3, bound=1)
    assert clocks.tick(0).done()
    ahead = clocks.tick(0)
    clocks.tick(1)
    assert not ahead.done(), "rank 2 has made none"
    clocks.tick(2)
    assert ahead.done()


def test_a_barrier_lets_who_is_ahead_come_too_and_all_begin_even():
    clocks = Clocks(2, bound=0)
    ahead = clocks.tick(0)
    assert not ahead.done()
    clocks.rest(1)
    assert ahead.done()
    clocks.rest(0)
    assert not clocks.tick(1).done(), "bound 0: step by step"
    assert clocks.tick(0).done()


def test_shares_are_even():
    tensors = [torch.zeros(n) for n in (100, 10, 60, 30)]
    assert shares_of(tensors, 2) == [[0], [1, 2, 3]]
    assert shares_of(tensors[:1], 2) == [[0], []]
