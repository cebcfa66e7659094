"""The job's format and the outbox."""

import json
import time

import pytest

from suite.worker.job import Outbox, finite, read_job

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def opened(tmp_path):
    """Opens outboxes in the test's folder and closes them after it."""
    outboxes = []

    def open_one(rank=0):
        outboxes.append(Outbox(str(tmp_path), rank))
        return outboxes[-1]

    yield open_one
    for outbox in outboxes:
        outbox.close()


def lines(folder, rank=0):
    return [json.loads(line) for line in (folder / ("rank-%d.jsonl" % rank)).read_text().splitlines()]


def test_a_job_reads_back(tmp_path):
    path = tmp_path / "job.json"
    path.write_text('{"format": 1, "task": "measure"}')
    assert read_job(str(path)) == {"format": 1, "task": "measure"}


@pytest.mark.parametrize("content", ['{"format": 2}', "{}"])
def test_another_format_is_refused(tmp_path, content):
    path = tmp_path / "job.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"job\.json has format (2|None); this worker reads format 1"):
        read_job(str(path))


def test_messages_are_there_as_soon_as_they_are_sent(tmp_path, opened):
    outbox = opened(3)
    before = time.time()
    outbox.send("hello", world=4)
    (first,) = lines(tmp_path, 3)
    assert before <= first.pop("time") <= time.time()
    assert first == {"type": "hello", "world": 4}
    outbox.send("done")
    assert [message["type"] for message in lines(tmp_path, 3)] == ["hello", "done"]


def test_what_json_cannot_say_becomes_null(tmp_path, opened):
    opened().send("pass", record={"loss": NAN, "step_s": [1.0, INF, -INF], "pair": (NAN, 2)})
    text = (tmp_path / "rank-0.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert lines(tmp_path)[0]["record"] == {"loss": None, "step_s": [1.0, None, None], "pair": [None, 2]}


def test_finite_leaves_everything_else_alone():
    value = {"a": [1, "x", None, True, 2.5, {"b": ()}]}
    assert finite(value) == {"a": [1, "x", None, True, 2.5, {"b": []}]}


def test_progress_is_thinned_out(tmp_path, opened):
    outbox = opened()
    for step in range(1000):
        outbox.progress(step=step)
    outbox.send("done")
    few = [message["type"] for message in lines(tmp_path)]
    assert few[0] == "progress"
    assert few[-1] == "done"
    assert len(few) < 10
    time.sleep(Outbox.PROGRESS_EVERY)
    outbox.progress(step=1000)
    assert lines(tmp_path)[-1]["step"] == 1000
