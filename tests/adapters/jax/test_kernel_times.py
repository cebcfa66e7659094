"""JAX's own profiler by stage: a profile of CUDA's kernels made by hand, and a real one of operations on the CPU."""

import gzip
import json
from types import SimpleNamespace

import pytest

from stagebench.adapters.jax.kernel_times import read
from stagebench.suite.worker.feed import ResidentFeed, own_synthetic
from stagebench.suite.worker.kernels import PROFILED, STAGES
from stagebench.suite.worker.passes import Passes
from stagebench.workloads import weights
from tests.support import networks


def event(name, begin, duration, **stats):
    return SimpleNamespace(name=name, start_ns=begin, duration_ns=duration, stats=list(stats.items()))


def plane(name, **lines):
    return SimpleNamespace(
        name=name, lines=[SimpleNamespace(name=each.replace("_", " "), events=events) for each, events in lines.items()]
    )


HOST = plane(
    "/host:CPU",
    python=[event("stage h2d", 0.0, 100.0), event("stage forward", 200.0, 500.0), event("PjitFunction", 210.0, 90.0)],
    pool=[
        event("ThunkExecutor::Execute", 220.0, 400.0),
        event("while", 230.0, 200.0, hlo_op="while"),
        event("fusion.1", 240.0, 50.0, hlo_op="fusion.1"),
        event("dot", 450.0, 100.0, hlo_op="dot"),
        event("dot", 800.0, 100.0, hlo_op="dot"),
    ],
)
GPU = plane(
    "/device:GPU:0 (an H100)",
    Stream_1=[event("gemm_fusion_dot_3", 190.0, 100.0), event("MemcpyD2D", 300.0, 10.0), event("late", 750.0, 10.0)],
    Stream_2=[event("MemcpyH2D", 20.0, 30.0)],
    XLA_Ops=[event("dot.3", 250.0, 100.0)],
)


def test_on_a_device_its_streams_count():
    found = {(each.stage, each.name): each for each in read([HOST, GPU], on_cuda=True)}
    assert {key: each.kind for key, each in found.items()} == {
        ("forward", "gemm_fusion_dot_3"): "kernel",
        ("forward", "MemcpyD2D"): "memcpy",
        ("h2d", "MemcpyH2D"): "memcpy",
    }
    copied = found["h2d", "MemcpyH2D"]
    assert (copied.begin, copied.end) == pytest.approx((20e-9, 50e-9))


def test_on_a_cpu_the_outermost_operations_of_programs_count():
    assert [(each.stage, each.name, each.kind) for each in read([HOST, GPU], on_cuda=False)] == [
        ("forward", "while", "operator"),
        ("forward", "dot", "operator"),
    ]


@pytest.mark.parametrize("strategy", ["single", "pmap"])
def test_operations_of_a_real_training(trainer, tmp_path, strategy):
    graph, ours = networks.two_heads(), trainer(strategy=strategy, batch=8)
    ours.build(graph, dict(weights.initial(graph)))
    passes = Passes(ours, ResidentFeed(ours, own_synthetic(graph, 8, 1, 0)), None)
    found = passes.kernels(str(tmp_path / "trace.json.gz"))
    exchanging = {"communication"} if strategy == "pmap" else set()
    assert {row.stage for row in found.rows} == {"forward", "backward", "update"} | exchanging
    assert {row.kind for row in found.rows} == {"operator"}
    assert all(found.stages[stage] > 0 for stage in ("forward", "backward", "update"))
    assert found.profiler.startswith("jax.profiler ")
    assert found.trace == "trace.json.gz"
    with gzip.open(str(tmp_path / "trace.json.gz")) as stream:
        events = json.loads(stream.read().decode())["traceEvents"]
    ranges = [each["name"] for each in events if each.get("name", "").startswith("stage ")]
    assert {name: ranges.count(name) for name in ranges} == {"stage " + stage: PROFILED for stage in STAGES}
