"""What each adapter refuses of a case and why, and what stands next to it and is taken."""

import pytest

from stagebench.suite.contracts import knobs as declared
from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.plan import checks
from stagebench.suite.plugins import adapters
from stagebench.suite.worker.case_parts import Input, Schedule
from stagebench.workloads.networks import by_name

GPU = {"device": "cuda"}
ON_GPUS = "needs device = 'cuda'"
NOTHING = "changes nothing under "
TIMED_ANEW = "needs deterministic = 'off': what is timed anew in every run"
FLOAT32 = "needs precision = 'float32'"
WAYS = ({"products": "onednn"}, {"pointwise": "onednn"}, {"pointwise": "product"})  # to compute layers
ROWS = {  # by adapter: strategy, fields of the case or its placement and knobs, words of the refusal or None
    "caffempi": [
        *(("two_level", {"node_ranks": asked}, None) for asked in (2, "auto")),
        ("two_level", {"node_ranks": 0}, "node_ranks is 0, and the least is 1"),
        ("data_parallel", {"node_ranks": "auto"}, None),
        ("data_parallel", {"node_ranks": 2}, NOTHING + "'data_parallel'"),
        *(("single", asked, NOTHING + "'single'") for asked in ({"overlap": "merged"}, {"progress": "layers"})),
        ("single", {"staging": "pinned"}, NOTHING + "'single'"),
        *(
            (strategy, {"overlap": "merged", "progress": "layers", "staging": "pinned", **GPU}, None)
            for strategy in ("data_parallel", "two_level", "parameter_server", "parameter_server_async")
        ),
        ("single", GPU, None),
        *(("data_parallel", {"precision": name, **GPU}, None) for name in ("float32", "float64", "tf32")),
        ("data_parallel", {"precision": "tf32"}, "does not do precision 'tf32': it wants device = 'cuda'"),
        ("data_parallel", {"staging": "auto"}, None),
        ("data_parallel", {"staging": "pinned"}, "staging = 'pinned' needs device = 'cuda': what processors"),
        *(("single", {name: "on"}, ON_GPUS) for name in ("cudnn_autotune", "deterministic")),
        ("single", {"deterministic": "on", **GPU}, None),
        ("single", {"cudnn_autotune": "on", "deterministic": "on", **GPU}, TIMED_ANEW),
        ("data_parallel", {"staging": "none", **GPU}, None),
        ("two_level", {"staging": "none", **GPU}, "its sums are formed in host memory"),
        ("parameter_server", {"staging": "none", **GPU}, "take staging = 'pinned', or 'data_parallel'"),
        ("parameter_server_async", {"staging": "none", **GPU}, "its server's weights lie in host memory"),
        *(("single", way, None) for way in WAYS),
        *(("inference", way, "PyTorch's own operators alone") for way in WAYS),
        *(("single", {"precision": "float64", **way}, FLOAT32) for way in WAYS),
    ],
    "cntk": [
        ("single", {"block_steps": 3}, "belongs to the strategy 'block_momentum'"),
        ("block_momentum", {"block_steps": 3}, None),
        ("block_momentum", {"block_steps": 0}, "block_steps is 0, and the least is 1"),
    ],
    "horovod-mxnet": [
        ("allreduce", {"controller": "gloo", "cycle_time_ms": 0.1, "fusion_threshold_mb": 0}, None),
        ("allreduce", {"fusion_threshold_mb": -1}, "fusion_threshold_mb is -1, and the least is 0"),
        ("allreduce", {"cycle_time_ms": 0}, "cycle_time_ms is 0, and the least is 0.001"),
    ],
    **{
        name: [("allreduce", {}, None), ("allreduce", GPU, "what Horovod is built for here, over gloo and MPI")]
        for name in ("horovod-tensorflow",)
    },
    "horovod-pytorch": [
        ("allreduce", {}, None),
        ("allreduce", GPU, None),
        *(("allreduce", {"precision": name, **GPU}, None) for name in ("tf32", "bfloat16", "float16", "float64")),
        ("allreduce", {"precision": "bfloat16"}, "does not do precision 'bfloat16'"),
        ("allreduce", {"share_devices": True, **GPU}, "NCCL refuses ranks that share a GPU"),
    ],
    "jax": [
        ("single", {"preallocate": 0, **GPU}, None),
        ("single", {"preallocate": 0.75, **GPU}, None),
        ("single", {"preallocate": 0.75}, None),
        ("single", {"preallocate": 0}, "preallocate"),
        *(("single", {name: "on"}, ON_GPUS) for name in ("cudnn_autotune", "deterministic")),
        *(("single", {name: "on", **GPU}, None) for name in ("cudnn_autotune", "deterministic")),
        ("single", {"cudnn_autotune": "on", "deterministic": "on", **GPU}, TIMED_ANEW),
        *(
            ("single", {"precision": name, **GPU}, None)
            for name in ("float32", "bfloat16", "float64", "tf32", "float16")
        ),
        *(("single", {"precision": name}, None) for name in ("float32", "bfloat16", "float64")),
        *(("single", {"precision": name}, f"does not do precision '{name}'") for name in ("tf32", "float16")),
    ],
    "mxnet": [
        ("single", {"servers": 2}, NOTHING + "'single'"),
        ("dist_sync", {"servers": 0}, "servers is 0, and the least is 1"),
        ("dist_sync", {"lrn": "native", "precision": "float64"}, "lrn = 'native' needs precision = 'float32'"),
        ("dist_sync", {"lrn": "native", "servers": 2}, None),
        *((name, {"compression": "2bit"}, f"{NOTHING}'{name}'") for name in ("kvstore_local", "single")),
        ("dist_sync", {"compression": "2bit", "precision": "float64"}, "'2bit' needs precision = 'float32'"),
        ("dist_sync", {"compression": "2bit", "threshold": 0}, "threshold is 0, and must be above 0"),
        ("dist_sync", {"threshold": 0.1}, "threshold = 0.1 needs compression = '2bit'"),
        ("kvstore_device", {"compression": "2bit", "threshold": 0.1}, None),
        ("dist_async", {"compression": "2bit", "servers": 2}, None),
        ("single", {"onednn": "off", **GPU}, "needs device = 'cpu'"),
    ],
    "pytorch": [
        ("inference", {}, None),
        ("inference", {"data": "digits"}, "synthetic samples alone"),
        ("inference", {"ranks_per_node": 2}, "infers on one rank, not on 2"),
        ("pipeline_inference", {}, None),
        ("pipeline_inference", {"ranks_per_node": 1}, "ask for two ranks, or use 'inference'"),
        ("pipeline_inference", {"microbatches": 3}, "microbatches = 3 equal pieces"),
        ("pipeline_inference", {"passes": ("offline", "server")}, "asks a predictor of one process"),
        ("pipeline_inference", {"data": "digits"}, "synthetic samples alone"),
        *((name, way, "PyTorch's own operators alone") for name in ("inference", "pipeline_inference") for way in WAYS),
        *(("inference", {"compile": mode, **GPU}, "write over") for mode in ("reduce-overhead", "max-autotune")),
        ("ddp", {"bucket_cap_mb": True}, "is one of 'auto', int, not True"),
        ("ddp", {"bucket_cap_mb": "25"}, "is one of 'auto', int, not '25'"),
        ("ddp", {"memory_format": "nhwc"}, "is one of 'auto', 'contiguous', 'channels_last'"),
        ("ddp", {"compile": "yes"}, "is one of True, False, 'reduce-overhead', "),
        ("ddp", {"bucket_cap_mb": 4, "gradient_as_bucket_view": "auto", "ranks_per_node": 1}, None),
        ("ddp", {"bucket_cap_mb": 0}, "bucket_cap_mb is 0, and the least is 1"),
        ("ddp", {"compression": "bf16"}, "needs device = 'cuda': torch sends"),
        (
            "ddp",
            {"compression": "powersgd", "memory_format": "channels_last"},
            "needs memory_format = 'auto' or 'contiguous'",
        ),
        ("single", {"static_graph": True}, "belongs to the strategy 'ddp' and changes nothing under 'single'"),
        ("single", {"static_graph": False, "bucket_cap_mb": "auto"}, None),
        ("single", {"bucket_cap_mb": 25}, "belongs to the strategy 'ddp' and"),
        ("dp", {"compile": True, "devices": 2, **GPU}, "belongs to the strategy 'single' and"),
        ("dp", {"devices": 2}, "it would run the whole batch on one, unsplit"),
        ("accumulate", {"microbatches": 0}, "microbatches is 0, and the least is 1"),
        ("hybrid", {"stages": 1, "ranks_per_node": 4}, "stages is 1, and the least is 2"),
        ("local_sgd", {"period": 1}, "period is 1, and the least is 2"),
        ("pipeline", {"batch": 4}, None),
        ("pipeline", {"ranks_per_node": 1}, "ask for two ranks, or use 'single'"),
        ("pipeline", {"schedule": "1f1b", "microbatches": 1}, "1f1b wants as many pieces as there are stages, 2"),
        (
            "pipeline",
            {"workload": "gpt_char", "batch": 5, "schedule": "interleaved", "microbatches": 5},
            "5 do not go through 2 interleaved ranks",
        ),
        ("pipeline", {"workload": "gpt_char", "schedule": "interleaved", "microbatches": 4, "chunks": 3}, None),
        ("pipeline", {"schedule": "interleaved", "microbatches": 4, "chunks": 3}, "3 stages at most"),
        ("pipeline", {"chunks": 3}, "chunks = 3 needs schedule = 'interleaved'"),
        ("hybrid", {"schedule": "interleaved", "ranks_per_node": 4}, "DDP averages one stage of a rank"),
        ("parameter_server", {"staleness": 2}, "staleness = 2 needs mode = 'async': it bounds asynchronous workers"),
        ("parameter_server", {"staleness": 2, "mode": "async"}, None),
        ("parameter_server", {"backups": 1, "mode": "async"}, "needs mode = 'sync': asynchronous servers wait for n"),
        ("parameter_server", {"backups": 2, "server_ranks": 1}, "backups = 2 of 2 workers leave none to wait for"),
        ("parameter_server", {"backups": 1}, "backups = 1 needs server_ranks = 1"),
        ("parameter_server", {"backups": 1, "server_ranks": 1}, None),
        *((name, {"share_devices": True, **GPU}, None) for name in ("ddp", "zero1")),
        ("fsdp", {"share_devices": True, **GPU}, "NCCL refuses ranks that share a GPU"),
        ("pipeline", {"share_devices": True, **GPU}, "share them under ddp, accumulate, zero1, local_sgd"),
        ("ddp", {"share_devices": True, "compression": "bf16", **GPU}, "without compression = 'bf16'"),
        ("single", {"precision": "tf32"}, "does not do precision 'tf32': it wants device = 'cuda'"),
        ("single", {"precision": "tf32", **GPU}, None),
        ("single", {"precision": "float16", "compile": "max-autotune", **GPU}, None),
        ("single", {"precision": "float16", "cuda_graph": True, **GPU}, "float16 may skip an update"),
        ("single", {"precision": "float16", "optimiser": "adam", **GPU}, "may skip an update, after which Adam's"),
        ("fsdp", {"precision": "float16", **GPU}, "its losses are not scaled"),
        ("dp", {"workload": "gpt_char", "devices": 2, **GPU}, "copies of a tied layer"),
        ("dp", {"workload": "vit_ti16", "devices": 2, **GPU}, None),
        ("dp", {"precision": "bfloat16", **GPU}, "DataParallel's threads compute in float16"),
        ("single", {"cudnn_autotune": "on", "deterministic": "on", **GPU}, TIMED_ANEW),
        ("single", {"precision": "bfloat16", "cuda_graph": True, "compile": True, **GPU}, None),
        ("single", {"cuda_graph": True, "compile": "reduce-overhead", **GPU}, "those modes record graphs of their own"),
        ("single", {"optimiser": "adam", "cuda_graph": True, **GPU}, "repeats the rate and the epsilon"),
        (
            "single",
            {"schedule_of_rates": Schedule(warmup_epochs=1), "cuda_graph": True, **GPU},
            "repeats the rate and the epsilon",
        ),
        ("single", {"compile": "max-autotune"}, "needs device = 'cuda': these modes are about GPUs"),
        *(("single", {name: "on"}, ON_GPUS) for name in ("copy_stream", "deterministic")),
        ("single", {"decode": "gpu"}, "needs device = 'cuda': nvJPEG decodes on GPUs"),
        ("single", {"decode": "gpu", "cuda_graph": True, "compile": True, **GPU}, None),
        ("single", {"input": Input(augment="random"), "decode": "gpu", **GPU}, "use augment = 'centre', or decode = "),
        ("single", {"input": Input(on_error="skip"), "decode": "gpu", **GPU}, "use on_error = 'fail', or decode = 'ho"),
        (
            "single",
            {"input": Input(mode="memory"), "decode": "gpu", **GPU},
            "use data_mode = 'disk', or decode = 'host",
        ),
        ("single", {"input": Input(augment="random", on_error="skip"), **GPU}, None),
        *(
            ("ddp", {**way, **asked}, words)
            for way in WAYS
            for asked, words in (
                ({}, None),
                (GPU, "needs device = 'cpu'"),
                ({"precision": "bfloat16"}, FLOAT32),
                ({"compile": True}, "needs compile = False: a compiler chooses by itself"),
                ({"onednn": "off"}, "needs onednn = 'on'"),
            )
        ),
        ("tensor_parallel", {"products": "onednn"}, "as DTensors take no others"),
    ],
    "reference": [
        *(("single", {"batch": 4, "shards": shards}, None) for shards in (1, 2)),
        ("single", {"batch": 4, "shards": 3}, "a batch of 4 does not divide into shards = 3"),
        ("single", {"shards": "two"}, "wants int"),
        *(("single", {name: 0}, "the least is 1") for name in ("shards", "observed")),
    ],
    "tensorflow": [
        ("single", {"xla": "everything"}, "is one of 'auto', 'off', 'update', 'step'"),
        ("single", {"xla": "step"}, None),
        ("single", {"layout": "CHWN"}, "is one of 'auto', 'NHWC', 'NCHW'"),
        ("single", {"layout": "NCHW"}, "NCHW on a CPU needs xla = 'step'"),
        ("single", {"layout": "NCHW", "xla": "step"}, None),
        ("single", {"layout": "NCHW", **GPU}, None),
        ("single", {"pack_mb": 4}, "belongs to the strategy 'multiworker_mirrored' and changes nothing"),
        ("single", {"pack_mb": "auto", "servers": 1, "microbatches": 1}, None),
        ("multiworker_mirrored", {"pack_mb": 32}, None),
        ("multiworker_mirrored", {"pack_mb": "32"}, "is one of 'auto', int, not '32'"),
        ("multiworker_mirrored", {"pack_mb": True}, "is one of 'auto', int, not True"),
        ("multiworker_mirrored", {"pack_mb": 0}, "pack_mb is 0, and the least is 1"),
        ("multiworker_mirrored", {"cross_device": "hierarchical"}, "belongs to the strategy 'mirrored'"),
        ("multiworker_mirrored", {"microbatches": 2}, "belongs to the strategy 'model_parallel'"),
        ("multiworker_mirrored", {"servers": 2}, "'parameter_server' and the strategy 'coordinator'"),
        ("multiworker_mirrored", {"collective": "ring", **GPU}, None),
        ("multiworker_mirrored", {"collective": "nccl"}, "collective = 'nccl' needs device = 'cuda'"),
        ("mirrored", {"collective": "ring", "devices": 2}, "belongs to the strategy 'multiworker_mirrored'"),
        ("mirrored", {"cross_device": "nccl", "devices": 2}, "cross_device = 'nccl' needs device = 'cuda'"),
        ("mirrored", {"cross_device": "nccl", "devices": 2, **GPU}, None),
        ("mirrored", {"cross_device": "hierarchical", "devices": 3}, "forget the last of 3"),
        ("mirrored", {"cross_device": "hierarchical", "devices": 4}, None),
        ("mirrored", {"cross_device": "reduction_to_one", "devices": 3, **GPU}, None),
        ("model_parallel", {"microbatches": 0, "devices": 2}, "microbatches is 0, and the least is 1"),
        ("model_parallel", {"xla": "step", "devices": 2}, "for one device"),
        ("model_parallel_inference", {"devices": 2, "microbatches": 2}, None),
        ("model_parallel_inference", {"ranks_per_node": 2}, "it drives several devices from one: devices = 2"),
        ("model_parallel_inference", {"workload": "gpt_char", "devices": 2}, "stages at most"),
        *(("model_parallel_inference", {"xla": how, "devices": 2}, "for one device") for how in ("update", "step")),
        ("parameter_server", {"servers": 0}, "servers is 0, and the least is 1"),
        ("coordinator", {"servers": 0}, "servers is 0, and the least is 1"),
        *((name, {}, None) for name in ("parameter_server", "coordinator")),
        *(
            (name, {"xla": how}, "leave the knob xla at 'auto'")
            for name in ("parameter_server", "coordinator")
            for how in ("update", "step")
        ),
        ("coordinator", GPU, "a coordinator's workers are started on CPUs only"),
    ],
}


def case_of(adapter, strategy, **asked):
    """A case whose keywords are fields of it or of its placement, or knobs; a distributed strategy has two ranks."""
    able = adapters()[adapter].capabilities
    asked.setdefault("ranks_per_node", 1 + able.strategy(strategy).distributed)
    place = {name: asked.pop(name) for name in Placement.__dataclass_fields__ if name in asked}
    rates = {"schedule": asked.pop("schedule_of_rates")} if "schedule_of_rates" in asked else {}
    knobs = declared.values(able.knobs, {name: asked.pop(name) for name in able.knobs if name in asked})
    asked.setdefault("precision", able.precisions[0])
    asked.setdefault("workload", "mnist_small")
    return Case(adapter, strategy, placement=Placement(**place), knobs=knobs, **rates, **asked)


@pytest.mark.parametrize(
    ("adapter", "strategy", "asked", "words"), [(name, *row) for name, rows in ROWS.items() for row in rows]
)
def test_a_case_is_taken_or_refused_for_its_reason(adapter, strategy, asked, words):
    found = refusal(adapters()[adapter], case_of(adapter, strategy, **asked))
    assert found is None if words is None else words in str(found), found


def refusal(adapter: Adapter, case: Case) -> str | None:
    """None where it does not; no launcher is asked."""
    return checks.refusal(adapter, adapter.capabilities, case, by_name()[case.workload].graph(), {})
