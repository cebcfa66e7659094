"""Which rank am I?"""

from suite.worker.ranks import NAMES, own_rank
from tests.support.errors import raising

ENGINE = {"LSF_RANK": "5", "LSF_SIZE": "8", "LSF_LOCAL": "1"}
NAMED = {NAMES: "LSF_RANK,LSF_SIZE,LSF_LOCAL"}


def test_an_engine_s_variables_are_those_that_are_named_all_of_them():
    assert own_rank(dict(ENGINE, **NAMED)) == (5, 8, 1)
    assert own_rank(ENGINE) == (0, 1, 0)
    with raising(KeyError, "LSF_RANK"):
        own_rank(NAMED)


def test_our_own_variables_come_first_and_who_was_started_by_nobody_is_alone():
    assert own_rank(dict(ENGINE, STAGEBENCH_RANK="1", STAGEBENCH_WORLD="2", **NAMED)) == (1, 2, 1)
    assert own_rank({"STAGEBENCH_RANK": "3", "STAGEBENCH_WORLD": "4"}) == (3, 4, 3)
    assert own_rank({"PATH": "x"}) == (0, 1, 0)


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("STAGEBENCH_RANK", "2")
    monkeypatch.setenv("STAGEBENCH_WORLD", "3")
    monkeypatch.setenv("STAGEBENCH_LOCAL_RANK", "0")
    assert own_rank() == (2, 3, 0)
