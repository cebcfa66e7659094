"""Threads that share the work are counted, whoever else is busy."""

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from stagebench.suite.worker import behaviour


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("threads", "least", "most"), [(1, 1.0, 1.2), (2, 1.6, 2.2)])
def test_two_threads_are_two_and_one_is_one_and_elsewhere_nobody_can_tell(threads, least, most, monkeypatch):
    both = Barrier(threads, timeout=300)  # on a busy machine the first one awake would do the other's part, too

    def hashed(data):
        both.wait()
        return hashlib.sha256(data).digest()

    with ThreadPoolExecutor(threads) as pool:
        halves = [bytes(1 << 24)] * 2
        assert least <= behaviour.busy_threads(lambda: list(pool.map(hashed, halves)), 1.6, 2.0) <= most
    monkeypatch.setattr(behaviour, "TASKS", "/nowhere")
    assert behaviour.busy_threads(lambda: None, 1.3, 2.0) is None
