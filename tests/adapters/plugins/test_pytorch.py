"""What the controller is told, without PyTorch."""

import sys
from pathlib import Path

import pytest

from adapters.pytorch import plugin
from suite.contracts import knobs
from suite.contracts.case import Case, Placement
from suite.worker.case_parts import Input, Schedule
from tests.support.refusals import refusal

PYTHON = Path(sys.executable)

ADAPTER = plugin.PyTorch()


def whole(asked):
    return knobs.values(plugin.KNOBS, asked)


DDP = Case("pytorch", "ddp", "mnist_small", Placement(ranks_per_node=2), knobs=whole({}))


@pytest.mark.parametrize(
    ("knob", "value", "problem"),
    [
        ("bucket_cap_mb", True, "is one of 'auto', int, not True"),
        ("bucket_cap_mb", 4, None),
        ("bucket_cap_mb", "auto", None),
        ("bucket_cap_mb", "25", "is one of 'auto', int, not '25'"),
        ("memory_format", "nhwc", "is one of 'auto', 'contiguous', 'channels_last'"),
        ("compile", "yes", "is one of True, False, 'reduce-overhead', "),
        ("gradient_as_bucket_view", "auto", None),
    ],
)
def test_knobs_are_checked(knob, value, problem):
    found = ADAPTER.capabilities.knobs[knob].problem(value)
    assert (found is None) if problem is None else (problem in found)


def test_ddp_on_one_rank_is_allowed():
    assert ADAPTER.unsupported(DDP.on(placement=Placement())) is None


@pytest.mark.parametrize(
    ("strategy", "asked", "words"),
    [
        ("single", {"static_graph": True}, "belongs to the strategy 'ddp' and changes nothing under 'single'"),
        ("single", {"static_graph": False, "bucket_cap_mb": "auto"}, None),
        ("single", {"bucket_cap_mb": 25}, "belongs to the strategy 'ddp' and"),
        ("dp", {"compile": True}, "belongs to the strategy 'single' and"),
        ("ddp", {"bucket_cap_mb": 0}, "bucket_cap_mb is 0, and the least is 1"),
        ("accumulate", {"microbatches": 0}, "microbatches is 0, and the least is 1"),
        ("hybrid", {"stages": 1}, "stages is 1, and the least is 2"),
        ("local_sgd", {"period": 1}, "period is 1, and the least is 2"),
    ],
)
def test_knobs_say_whose_they_are_and_their_bounds(strategy, asked, words):
    found = knobs.refusal("pytorch", ADAPTER.capabilities.knobs, strategy, asked)
    assert found is None if words is None else words in found


def test_rounded_gradients_are_not_exact():
    assert ADAPTER.synchronous(DDP)
    assert not ADAPTER.synchronous(DDP.on(knobs=whole({"compression": "fp16"})))
    assert "needs device = 'cuda': torch sends" in refusal(ADAPTER, DDP.on(knobs=whole({"compression": "bf16"})))
    layout = DDP.on(knobs=whole({"compression": "powersgd", "memory_format": "channels_last"}))
    assert "needs memory_format = 'auto' or 'contiguous'" in refusal(ADAPTER, layout)


def test_a_batch_is_taken_in_equal_pieces():
    case = DDP.on(strategy="accumulate", batch=8)
    assert ADAPTER.microbatches(case) == 4
    assert ADAPTER.microbatches(DDP) == 1
    assert ADAPTER.microbatches(case.on(knobs=whole({"microbatches": 3}))) == 3


def test_a_pipeline_holds_one_network():
    ranks = Placement(ranks_per_node=4)
    pipeline = DDP.on(strategy="pipeline", placement=ranks, batch=4)
    assert (ADAPTER.model_parallel_size(pipeline), ADAPTER.microbatches(pipeline)) == (4, 4)
    assert ADAPTER.unsupported(pipeline) is None
    assert "ask for two ranks, or use 'single'" in ADAPTER.unsupported(pipeline.on(placement=Placement()))
    few = pipeline.on(knobs=whole({"schedule": "1f1b", "microbatches": 2}))
    assert "1f1b wants as many pieces as there are stages, 4" in ADAPTER.unsupported(few)
    assert ADAPTER.model_parallel_size(pipeline.on(strategy="hybrid")) == 2
    assert ADAPTER.model_parallel_size(DDP) == 1


def test_asynchronous_servers_are_not_exact():
    served = DDP.on(strategy="parameter_server")
    assert ADAPTER.synchronous(served)
    assert not ADAPTER.synchronous(served.on(knobs=whole({"mode": "async"})))
    assert not ADAPTER.synchronous(served.on(knobs=whole({"backups": 1})))
    assert not ADAPTER.synchronous(DDP.on(strategy="local_sgd"))
    assert [ADAPTER.wire_share(DDP.on(strategy=name)) for name in ("ddp", "local_sgd", "pipeline")] == [1 / 64, 0, 0]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"staleness": 2}, "staleness = 2 needs mode = 'async': it bounds asynchronous workers"),
        ({"staleness": 2, "mode": "async"}, None),
        ({"backups": 1, "mode": "async"}, "backups = 1 needs mode = 'sync': asynchronous servers wait for nobody"),
        ({"backups": 2, "server_ranks": 1}, "backups = 2 of 2 workers leave none to wait for"),
        ({"backups": 1}, "backups = 1 needs server_ranks = 1"),
        ({"backups": 1, "server_ranks": 1}, None),
    ],
)
def test_servers_refuse_what_would_mean_nothing(asked, words):
    found = refusal(ADAPTER, DDP.on(strategy="parameter_server", knobs=whole(asked)))
    assert found is None if words is None else words in found


def test_data_parallel_is_for_gpus_alone():
    assert ("device", "cpu") in ADAPTER.capabilities.strategy("dp").refuses


@pytest.mark.parametrize(
    ("strategy", "asked", "words"),
    [
        ("ddp", {}, None),
        ("zero1", {}, None),
        ("fsdp", {}, "NCCL refuses ranks that share a GPU"),
        ("pipeline", {}, "share them under ddp, accumulate, zero1, local_sgd"),
        ("ddp", {"compression": "bf16"}, "without compression = 'bf16'"),
    ],
)
def test_ranks_share_a_gpu_where_gloo_exchanges_for_them(strategy, asked, words):
    place = Placement(ranks_per_node=2, device="cuda", share_devices=True)
    found = refusal(ADAPTER, DDP.on(strategy=strategy, placement=place, knobs=whole(asked)))
    assert found is None if words is None else words in found


@pytest.mark.parametrize(
    ("changes", "knobs", "words"),
    [
        ({"precision": "tf32", "device": "cpu"}, {}, "does not do precision 'tf32': it wants device = 'cuda'"),
        ({"precision": "tf32"}, {}, None),
        ({"precision": "float16"}, {"compile": "max-autotune"}, None),
        ({"precision": "float16"}, {"cuda_graph": True}, "float16 may skip an update"),
        ({"precision": "float16", "optimiser": "adam"}, {}, "float16 may skip an update, after which Adam's"),
        ({"precision": "float16", "strategy": "fsdp"}, {}, "its losses are not scaled"),
        ({"precision": "bfloat16", "strategy": "dp"}, {}, "DataParallel's threads compute in float16"),
        ({}, {"cudnn_autotune": "on", "deterministic": "on"}, "what is timed anew in every run"),
        ({"precision": "bfloat16"}, {"cuda_graph": True, "compile": True}, None),
        ({}, {"cuda_graph": True, "compile": "reduce-overhead"}, "those modes record graphs of their own"),
        ({"optimiser": "adam"}, {"cuda_graph": True}, "repeats the rate and the epsilon"),
        ({"schedule": Schedule(warmup_epochs=1)}, {"cuda_graph": True}, "repeats the rate and the epsilon"),
        ({"device": "cpu"}, {"compile": "max-autotune"}, "needs device = 'cuda': these modes are about GPUs"),
        ({"device": "cpu"}, {"copy_stream": "on"}, "needs device = 'cuda'"),
        ({"device": "cpu"}, {"decode": "gpu"}, "needs device = 'cuda': nvJPEG decodes on GPUs"),
        ({}, {"decode": "gpu", "cuda_graph": True, "compile": True}, None),
        ({"input": Input(augment="random")}, {"decode": "gpu"}, "use augment = 'centre', or decode = 'host'"),
        ({"input": Input(on_error="skip")}, {"decode": "gpu"}, "use on_error = 'fail', or decode = 'host'"),
        ({"input": Input(mode="memory")}, {"decode": "gpu"}, "use data_mode = 'disk', or decode = 'host'"),
        ({"input": Input(augment="random", on_error="skip")}, {}, None),
        ({"device": "cpu"}, {"deterministic": "on"}, "needs device = 'cuda'"),
    ],
)
def test_what_gpus_alone_have(changes, knobs, words):
    changes = {"strategy": "single", "device": "cuda", **changes}
    case = DDP.on(placement=Placement(device=changes.pop("device")), knobs=whole(knobs), **changes)
    found = refusal(ADAPTER, case)
    assert found is None if words is None else words in found


def test_cublas_adds_up_alike_where_that_is_asked_for():
    alike = DDP.on(strategy="single", placement=Placement(device="cuda"), knobs=whole({"deterministic": "on"}))
    assert ADAPTER.environ(alike, PYTHON) == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def test_only_tuned_cpu_processes_get_allocator_settings():
    assert ADAPTER.environ(DDP, PYTHON) == {}
    assert ADAPTER.environ(DDP.on(tuning="tuned", placement=Placement(device="cuda")), PYTHON) == {}
    assert ADAPTER.environ(DDP.on(tuning="tuned"), PYTHON)["MALLOC_TRIM_THRESHOLD_"] == str(32 << 30)


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        ({}, True),
        ({"tuning": "default"}, False),
        ({"precision": "bfloat16"}, False),
        ({"placement": Placement(device="cuda")}, False),
        ({"strategy": "tensor_parallel"}, False),
        ({"knobs": whole({"compile": True})}, False),
        ({"knobs": whole({"onednn": "off"})}, False),
        ({"knobs": whole({"products": "torch"})}, True),
        ({"knobs": whole({"products": "torch", "pointwise": "torch"})}, False),
    ],
)
def test_layers_that_are_timed_on_the_case_s_batch_want_a_proof_for_each(changes, times):
    assert ADAPTER.tunes_to_batch(DDP.on(tuning="tuned").on(**changes)) is times


@pytest.mark.parametrize("asked", [{"products": "onednn"}, {"pointwise": "onednn"}, {"pointwise": "product"}])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"placement": Placement(device="cuda")}, "needs device = 'cpu'"),
        ({"precision": "float64"}, "needs precision = 'float32'"),
        ({"precision": "bfloat16"}, "needs precision = 'float32'"),
        ({"knobs": {"compile": True}}, "needs compile = False: a compiler chooses by itself"),
        ({"knobs": {"onednn": "off"}}, "needs onednn = 'on'"),
        ({"strategy": "tensor_parallel"}, "as DTensors take no others"),
    ],
)
def test_a_way_to_compute_layers_is_refused_where_it_would_change_nothing(asked, changes, words):
    case = DDP.on(**{**changes, "knobs": whole({**asked, **changes.get("knobs", {})})})
    assert words in refusal(ADAPTER, case)
    assert refusal(ADAPTER, case.on(knobs=whole({**changes.get("knobs", {}), **dict.fromkeys(asked, "torch")}))) is None
    assert refusal(ADAPTER, DDP.on(knobs=whole(asked))) is None
