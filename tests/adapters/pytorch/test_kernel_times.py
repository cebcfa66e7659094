"""torch's own profiler by stage: a trace of CUDA's kernels written by hand, and a real one of operators on the CPU."""

import gzip
import json

import pytest

from stagebench.adapters.pytorch.kernel_times import read
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.feed import ResidentFeed, own_synthetic
from stagebench.suite.worker.kernels import PROFILED, STAGES, summed
from stagebench.suite.worker.passes import Passes
from stagebench.workloads import weights
from tests.support import networks
from tests.support.errors import raising


def event(cat, name, ts, dur, tid=1):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}


def iteration(at):
    """A copy in h2d; two kernels of forward that overlap; one of backward, which another thread launched; microseconds.

    The second kernel of forward seems to begin before its stage, as the clocks of host and device differ a little.
    """
    return [
        event("user_annotation", "ProfilerStep#3", at, 400.0),
        event("user_annotation", "stage h2d", at, 50.0),
        event("cuda_runtime", "cudaMemcpyAsync", at + 2.0, 3.0),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at + 10.0, 30.0, tid=7),
        event("user_annotation", "stage forward", at + 60.0, 100.0),
        event("gpu_user_annotation", "stage forward", at + 61.0, 90.0, tid=7),
        event("cpu_op", "aten::conv2d", at + 61.0, 20.0),
        event("kernel", "sm90_gemm", at + 70.0, 40.0, tid=7),
        event("kernel", "relu", at + 59.0, 31.0, tid=8),
        event("user_annotation", "stage backward", at + 170.0, 100.0),
        event("kernel", "sm90_gemm", at + 180.0, 60.0, tid=7),
        event("gpu_memset", "Memset (Device)", at + 245.0, 5.0, tid=7),
        event("kernel", "barrier", at + 275.0, 5.0, tid=9),
        event("user_annotation", "stage communication", at + 290.0, 1.0),
        event("user_annotation", "stage update", at + 300.0, 40.0),
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "ts": at + 301.0, "pid": 1, "tid": 7, "id": 1},
    ]


def test_what_runs_on_the_device_belongs_to_the_stage_that_waited_for_it():
    events = [each for number in range(PROFILED) for each in iteration(5e12 + 1000.0 * number)]
    found = summed(read(events[::-1], on_cuda=True), "theirs")
    rows = {(row.stage, row.name): row for row in found.rows}
    assert {key: (row.kind, row.calls, round(1e6 * row.seconds, 2)) for key, row in rows.items()} == {
        ("h2d", "Memcpy HtoD (Pinned -> Device)"): ("memcpy", 1.0, 30.0),
        ("forward", "sm90_gemm"): ("kernel", 1.0, 40.0),
        ("forward", "relu"): ("kernel", 1.0, 31.0),
        ("backward", "sm90_gemm"): ("kernel", 1.0, 60.0),
        ("backward", "Memset (Device)"): ("memset", 1.0, 5.0),
    }
    busy = {stage: round(1e6 * seconds, 2) for stage, seconds in found.stages.items()}
    assert busy == {"h2d": 30.0, "forward": 51.0, "backward": 65.0, "communication": 0.0, "update": 0.0}


def test_without_a_stage_nothing_is_counted():
    assert list(read([event("kernel", "relu", 1.0, 2.0)], on_cuda=True)) == []
    assert list(read([event("cpu_op", "aten::relu", 1.0, 2.0)], on_cuda=False)) == []


def test_of_operators_the_outermost_count_and_collectives_of_any_thread():
    stage, inner = event("user_annotation", "stage communication", 0.0, 50.0), event("cpu_op", "aten::mul", 10.0, 5.0)
    outer = [
        event("cpu_op", "c10d::allreduce_", 10.0, 10.0),
        event("user_annotation", "gloo:all_reduce", 15.0, 30.0, 2),
    ]
    others = [event("cpu_op", "aten::stack", 5.0, 40.0, tid=3)]  # a reader's
    found = list(read([stage, inner, *outer, *others], on_cuda=False))
    assert [(each.name, each.stage) for each in found] == [(each["name"], "communication") for each in outer]


@pytest.fixture
def profile(trainer, tmp_path):
    """A function that profiles a network with a convolution, as the pass does; (what was found, its trace)."""

    def run(**options):
        graph, ours = networks.two_heads(), trainer(batch=8, **options)
        ours.build(graph, dict(weights.initial(graph)))
        passes = Passes(ours, ResidentFeed(ours, own_synthetic(graph, 8, 1, 0)), None)
        return passes.kernels(str(tmp_path / "trace.json.gz")), tmp_path / "trace.json.gz"

    return run


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_operators_of_a_real_training(profile, tuning):
    found, trace = profile(tuning=tuning)
    assert {row.stage for row in found.rows} == {"forward", "backward", "update"} < set(STAGES)
    assert {row.kind for row in found.rows} == {"operator"}
    named = {(row.stage, row.name): row for row in found.rows}
    assert named["forward", "aten::conv2d"].seconds > 0
    assert any(stage == "backward" and "ConvolutionBackward" in name for stage, name in named)
    assert any(stage == "update" and name.startswith("Optimizer.zero_grad#") for stage, name in named)
    assert all(row.calls == int(row.calls) >= 1 for row in found.rows), "every iteration is the same"
    assert found.profiler.startswith("torch.profiler ")
    assert found.trace == trace.name
    with gzip.open(str(trace)) as stream:
        events = json.loads(stream.read().decode())["traceEvents"]
    taken = {stage: [1e-6 * each["dur"] for each in events if each.get("name") == "stage " + stage] for stage in STAGES}
    assert {stage: len(times) for stage, times in taken.items()} == dict.fromkeys(STAGES, PROFILED)
    for stage in ("forward", "backward", "update"):
        assert 0 < found.stages[stage] <= max(taken[stage]), "operators are within their stage"


def test_the_exchange_of_real_ranks_is_a_stage_of_its_own(ranks):
    for found in ranks("kernels", networks.two_heads(), batch=8):
        stages = {stage for stage, name in found["names"] if name == "gloo:all_reduce"}
        assert stages == {"communication"}
        assert found["busy"]["communication"] > 0


def test_no_trace_where_none_is_asked_for(trainer, tmp_path):
    graph, ours = networks.two_heads(), trainer(batch=8)
    ours.build(graph, dict(weights.initial(graph)))
    batch = ours.to_device(own_synthetic(graph, 8, 1, 0)[0])

    def forward(within):
        with within("forward"):
            ours.forward(batch)

    found = ours.kernel_times(forward, "")
    assert (found.trace, found.stages["backward"], list(tmp_path.iterdir())) == ("", 0.0, [])
    assert found.stages["forward"] > 0
    with pytest.raises(Unsupported, match="saw no operators"):
        ours.kernel_times(lambda within: None, "")


def test_a_trace_that_is_not_understood_costs_no_measurement(trainer, monkeypatch):
    monkeypatch.setattr("stagebench.adapters.pytorch.kernel_times.read", lambda events, on_cuda: [{}["ts"]])
    with raising(Unsupported, "KeyError", "ts"):
        trainer().kernel_times(lambda within: None, "")


def test_compiled_on_a_cpu_it_shows_no_kernels(trainer):
    ours = trainer(batch=8)
    ours._compiled = True
    with pytest.raises(Unsupported, match=r"torch\.compile"):
        ours.kernel_times(None, "")
