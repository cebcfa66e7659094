"""What a profiler saw, summed up; and the pass that asks for it, in a whole worker."""

import gzip

from stagebench.suite.worker import kernels, messages
from stagebench.suite.worker.contract import KernelTimes
from stagebench.suite.worker.kernels import (
    LARGEST,
    MOST,
    OTHERS,
    PROFILED,
    TRACE,
    Activity,
    keep,
    longest,
    summed,
    union,
)
from stagebench.suite.worker.messages import of_type
from tests.support.jobs import measure

STREAMS = [("f", 0.0, 2.0), ("f", 3.0, 4.0), ("g", 1.0, 2.5)]  # of one stage, two of them side by side


def seen(iterations=PROFILED):
    return [
        Activity("forward", n, name, "kernel", begin, end) for n in range(iterations) for name, begin, end in STREAMS
    ]


def content(path):
    with gzip.open(str(path)) as stream:
        return stream.read().decode()


def test_a_stage_is_busy_as_long_as_any_kernel_runs_over_the_iterations_asked_for():
    found = summed(seen(), "theirs 1")
    assert found.stages == {"h2d": 0.0, "forward": 3.5, "backward": 0.0, "communication": 0.0, "update": 0.0}
    wanted = [KernelTimes("forward", name, "kernel", calls, 1.5 * calls) for name, calls in (("f", 2.0), ("g", 1.0))]
    assert found.rows == wanted
    assert (found.profiler, found.trace) == ("theirs 1", "")
    assert union([]) == 0.0
    assert union([(3.0, 4.0), (0.0, 2.0), (1.0, 2.5), (1.0, 1.5)]) == 3.5
    (f, _) = summed(seen(2), "theirs 1").rows
    assert (f.calls, f.seconds) == (4.0 / PROFILED, 0.0)  # the median of five, three of which had none
    assert summed(seen(PROFILED + 2), "theirs 1") == summed(seen(), "theirs 1")


def test_the_shortest_rows_are_summed_up_by_stage_and_kind():
    rows = [KernelTimes("update", str(n), "kernel", 1.0, float(n)) for n in range(MOST + 3)]
    rows.append(KernelTimes("update", "copy", "memcpy", 2.0, 0.5))
    found = longest(rows)
    assert [row.name for row in found[:2]] == [str(MOST + 2), str(MOST + 1)]
    assert len(found) == MOST + 2
    others = [KernelTimes("update", OTHERS, kind, *times) for kind, times in (("kernel", (3, 3)), ("memcpy", (2, 0.5)))]
    assert found[MOST:] == others


def test_a_trace_that_is_too_large_is_left_out(tmp_path, monkeypatch):
    assert keep(b"[]", str(tmp_path / "small"))
    assert content(tmp_path / "small") == "[]"
    monkeypatch.setattr(kernels, "LARGEST", 8)
    assert not keep(b"[]", str(tmp_path / "large"))
    assert not (tmp_path / "large").exists()
    assert LARGEST == 8 << 20


def test_the_pass_runs_every_stage_as_often_as_it_says_and_leaves_a_trace(make_job, work):
    passes = ("native", "staged", "kernels")
    job = make_job(measure(*passes), trainer="toy:ProfiledToy")
    code, found = work(job)
    assert code == 0
    assert tuple(each.name for each in of_type(messages.Pass, found)) == passes[:-1]
    (told,) = of_type(messages.Kernels, found)
    stages = {"forward": "forward", "backward": "backward", "communication": "communicate", "update": "update"}
    assert {(row.stage, row.name): row.calls for row in told.rows} == dict.fromkeys(stages.items(), 1.0)
    assert told.trace == TRACE
    assert [type(each) for each in found].index(messages.Memory) < found.index(told), "a profiler takes memory"
    assert content(job.parent / TRACE) == "{}"


def test_ranks_meet_before_they_exchange_and_the_first_alone_keeps_a_trace(make_job, work):
    job = make_job(measure("kernels"), trainer="toy:ProfiledToy", world=2)
    code, found = work(job, rank=1, world=2)
    assert code == 0
    (told,) = of_type(messages.Kernels, found)
    assert told.trace == ""
    assert not (job.parent / TRACE).exists()
    assert not [note for note in of_type(messages.Notes, found) if "kernels" in note.notes]


def test_a_trainer_without_a_profiler_says_so_and_measures_the_rest(make_job, work):
    code, found = work(make_job(measure("native", "kernels"), trainer="toy:ToyTrainer"))
    assert (code, found[-1]) == (0, messages.Done())
    assert messages.Notes({"kernels": "not timed: ToyTrainer has no profiler of its kernels"}) in found
    assert not of_type(messages.Kernels, found)
