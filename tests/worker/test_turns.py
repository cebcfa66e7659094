"""Turns: a rank sleeps until it is told to go on, and each part of a native pass is one."""

import os
import threading
import time

import pytest
import toy

from stagebench.suite.worker.loop import RESUMED_SHARE, Loop, Side
from stagebench.suite.worker.messages import Waiting
from stagebench.suite.worker.turns import PIPE, Turns
from tests.support import trainers


def pipe(folder, rank=0):
    """The writing end of a rank's pipe in that folder."""
    path = str(folder / (PIPE % rank))
    os.mkfifo(path)
    return os.open(path, os.O_RDWR)


def test_without_a_pipe_it_is_always_this_ranks_turn(tmp_path):
    sent = []
    turns = Turns(str(tmp_path), 0, sent.append)
    turns.wait(more=True)
    assert not turns.taken
    assert sent == []


def test_a_rank_says_that_it_waits_and_sleeps_until_its_turn(tmp_path):
    end, sent = pipe(tmp_path, 3), []
    turns = Turns(str(tmp_path), 3, sent.append)
    assert turns.taken
    waiting = threading.Thread(target=turns.wait, args=(True,))
    waiting.start()
    limit = time.monotonic() + 120
    while not sent and time.monotonic() < limit:
        time.sleep(0.01)
    waiting.join(0.1)
    assert waiting.is_alive()
    assert sent == [Waiting(True)]
    os.write(end, b".")
    waiting.join(120)
    assert not waiting.is_alive()
    os.close(end)


@pytest.mark.parametrize("untimed", [0, 2])
def test_each_part_of_a_native_pass_is_a_turn_and_begins_with_untimed_steps(tmp_path, sampling, untimed):
    end, events = pipe(tmp_path), []
    os.write(end, b"." * 100)  # its turn, always
    turns = Turns(str(tmp_path), 0, events.append)
    rule = sampling._replace(warmup_steps=3, steps=8)
    loop = Loop(toy.ToyTrainer(trainers.setup()), rule, lambda **_: None, turns)
    side = Side(lambda: events.append("step"), lambda: events.append("drained"), untimed)
    timed, _, _ = loop.undisturbed("native", side)
    begun = events.index(Waiting(True))
    untimed = max(untimed, len(timed.step_s) // RESUMED_SHARE, 1)
    assert events[begun + 1] == "drained"
    assert events[begun + 2 :] == ["step"] * (untimed + len(timed.step_s)) + [Waiting(False)]
    os.close(end)
