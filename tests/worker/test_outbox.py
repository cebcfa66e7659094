"""The outbox: messages are there at once and whole, progress is thinned out."""

import time

import pytest

from stagebench.suite.worker.messages import Done, Phase, Progress, decode
from stagebench.suite.worker.ranks import Outbox


@pytest.fixture
def outbox(tmp_path):
    opened = Outbox(str(tmp_path), 3)
    yield opened
    opened.close()


@pytest.fixture
def sent(tmp_path):
    return lambda: [decode(line) for line in (tmp_path / "rank-3.jsonl").read_text().splitlines()]


def test_two_who_believe_that_they_are_the_same_rank_leave_each_other_s_lines_whole(tmp_path, sent):
    both = [Outbox(str(tmp_path), 3) for _ in range(2)]
    words = ["of %d letters" % length * length for length in (1, 5000)]
    for said in words:
        for each in both:
            each.send(Phase(said))
    for each in both:
        each.close()
    assert sent() == [Phase(said) for said in words for _ in both]


def test_messages_are_there_as_soon_as_they_are_sent_and_progress_is_thinned_out(outbox, sent):
    outbox.send(Phase("build"))
    assert sent() == [Phase("build")]
    for step in range(1000):
        outbox.progress("native", "measure", step, 1000)
    outbox.send(Done())
    few = sent()[1:]
    assert few[0] == Progress("native", "measure", 0, 1000)
    assert few[-1] == Done()
    assert len(few) < 10
    time.sleep(Outbox.PROGRESS_EVERY)
    outbox.progress("native", "measure", 1000, 1000)
    assert sent()[-1].step == 1000


def test_a_process_that_works_alone_shows_it_and_one_that_waits_does_not(outbox, sent, monkeypatch):
    monkeypatch.setattr(Outbox, "LOOK_EVERY", 0.5)  # work is 50 ms, more than the test's other threads take
    outbox.send(Phase("build"))
    with outbox.at_work():
        time.sleep(1.2)
    assert sent() == [Phase("build")]
    with outbox.at_work(alone=False):
        sum(range(1 << 25))
    assert sent() == [Phase("build")]
    deadline = time.monotonic() + 240
    with outbox.at_work():
        while len(sent()) == 1 and time.monotonic() < deadline:
            sum(range(1 << 16))
    assert sent()[1]._replace(step=0, of=0) == Progress("build", "at work, seconds", 0, 0)
    with outbox.at_work(), open("/dev/zero", "rb") as zeros:
        while len(sent()) == 2 and time.monotonic() < deadline:
            zeros.read(4 << 20)
            time.sleep(0.01)
    assert len(sent()) > 2


def test_a_process_that_a_busy_machine_grants_little_shows_its_work(outbox, sent, monkeypatch):
    monkeypatch.setattr(Outbox, "LOOK_EVERY", 1.0)
    outbox.send(Phase("build"))
    deadline = time.monotonic() + 240
    with outbox.at_work():
        while len(sent()) == 1 and time.monotonic() < deadline:
            until = time.process_time() + 0.01
            while time.process_time() < until:
                pass
            time.sleep(0.13)
    assert len(sent()) > 1
