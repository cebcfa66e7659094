"""Which rank am I?"""

import pytest

from suite.worker.ranks import VARIABLES, own_rank


@pytest.mark.parametrize("engine", VARIABLES, ids=lambda row: row[0])
def test_every_engine_is_understood(engine):
    _, rank, world, local = engine
    assert own_rank({rank: "5", world: "8", local: "1"}) == (5, 8, 1)


def test_a_process_started_by_nobody_is_alone():
    assert own_rank({"PATH": "x"}) == (0, 1, 0)


def test_without_a_local_rank_the_rank_stands_in():
    assert own_rank({"STAGEBENCH_RANK": "3", "STAGEBENCH_WORLD": "4"}) == (3, 4, 3)


def test_our_own_variables_come_first():
    assert own_rank({"OMPI_COMM_WORLD_RANK": "7", "STAGEBENCH_RANK": "1", "STAGEBENCH_WORLD": "2"}) == (1, 2, 1)


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("STAGEBENCH_RANK", "2")
    monkeypatch.setenv("STAGEBENCH_WORLD", "3")
    monkeypatch.setenv("STAGEBENCH_LOCAL_RANK", "0")
    assert own_rank() == (2, 3, 0)
