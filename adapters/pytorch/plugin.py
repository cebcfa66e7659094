"""PyTorch as the controller sees it: what it can do and what its processes need."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from stagebench.suite.contracts.adapter import INFERENCE, Adapter, Backend, Capabilities, Strategy
from stagebench.suite.contracts.case import DTYPES, Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.kernels import FIXED_WORKSPACE, KERNEL_KNOBS, SEGMENTS, keep_memory
from stagebench.suite.contracts.knobs import Knob, Need

NO_COMMUNICATION = ("io", "h2d", "forward", "backward", "update")  # these exchange within their other stages


UNSCALED = "its losses are not scaled, as float16 wants; use bfloat16, or one of single, ddp and dp"

OVERWRITES = "its CUDA graphs write over the answers to the query before; use True, or 'max-autotune-no-cudagraphs'"
CANDIDATE_WAYS = (("products", "onednn"), ("pointwise", "onednn"), ("pointwise", "product"))
INFERRING = dict.fromkeys(CANDIDATE_WAYS, "inference has PyTorch's own operators alone; leave the knob at 'auto'")
NO_CANDIDATES = "it has PyTorch's own operators alone, as DTensors take no others; leave the knob at 'auto'"


def _strategy(name: str, trainer: str, words: str, **more: Any) -> Strategy:
    refuses = {} if name in ("single", "ddp", "dp") else {("precision", "float16"): UNSCALED}
    refuses.update(more.pop("refuses", {}))
    return Strategy(name, trainer, words, **{"changing_rate": True, "clips": True, **more}, refuses=refuses)


STRATEGIES = (
    _strategy("single", "stagebench.adapters.pytorch.replica:Single", "One process, no exchange.", distributed=False),
    _strategy(
        "ddp",
        "stagebench.adapters.pytorch.strategies.ddp:DDP",
        "DistributedDataParallel: buckets are all-reduced (gloo, NCCL) during the backward.",
    ),
    _strategy(
        "dp",
        "stagebench.adapters.pytorch.replica:DP",
        "DataParallel: one process scatters the batch and the weights over its GPUs in every step.",
        distributed=False,
        several_devices=True,
        separable=NO_COMMUNICATION,  # the weights are sent in the forward, the gradients summed up in the backward
        refuses={
            ("device", "cpu"): "torch.nn.DataParallel knows no CPU devices: it would run the whole batch on one, "
            "unsplit and without a word; use 'ddp' with several ranks, or device = 'cuda'",
            ("precision", "bfloat16"): "torch.nn.DataParallel's threads compute in float16 where it is asked for "
            "bfloat16, without scaling any loss; use 'ddp', or float16",
            ("kind", "tied"): "torch.nn.DataParallel's copies of a tied layer would share the first GPU's weight; use "
            "'ddp'",
        },
    ),
    _strategy(
        "accumulate",
        "stagebench.adapters.pytorch.strategies.ddp:Accumulate",
        "DistributedDataParallel that takes its batch in pieces and exchanges with the last one (no_sync before); the "
        "staged pass runs all forwards first.",
        microbatches="microbatches",
    ),
    _strategy(
        "zero1",
        "stagebench.adapters.pytorch.strategies.zero1:Zero1",
        "DistributedDataParallel with ZeroRedundancyOptimizer: each rank keeps a share of the optimiser's state, "
        "updates those parameters and sends them to the others; the sending counts as update, in every pass.",
    ),
    _strategy(
        "fsdp",
        "stagebench.adapters.pytorch.strategies.sharded:FSDP",
        "FSDP2 (fully_shard): parameters, gradients and state in shares; groups of layers are gathered in the forward "
        "and the backward, which also sums up their gradients.",
        separable=NO_COMMUNICATION,
    ),
    _strategy(
        "pipeline",
        "stagebench.adapters.pytorch.strategies.pipeline:Pipeline",
        "All ranks hold one network, each some of its layers (torch.distributed.pipelining); what they wait for each "
        "other, transfers included, is the stage bubble.",
        separable=NO_COMMUNICATION,
        model_parallel=True,
        cut="layers where one value crosses",
        microbatches="microbatches",
    ),
    _strategy(
        "tensor_parallel",
        "stagebench.adapters.pytorch.strategies.sharded:TensorParallel",
        "All ranks hold one network: dense layers are cut over them (parallelize_module), heads and MLPs of "
        "transformers as by Megatron-LM, the rest is whole on each; the exchange is a part of forward and backward.",
        separable=NO_COMMUNICATION,
        model_parallel=True,
        refuses=dict.fromkeys(CANDIDATE_WAYS, NO_CANDIDATES),
    ),
    _strategy(
        "branch_parallel",
        "stagebench.adapters.pytorch.strategies.branch_parallel:BranchParallel",
        "All ranks hold one network: the branches of every block (GoogLeNet's four) are distributed over them, the "
        "other layers are whole on each; what they wait for each other, transfers included, is the stage bubble.",
        separable=NO_COMMUNICATION,
        model_parallel=True,
        cut="branches",
    ),
    _strategy(
        "hybrid",
        "stagebench.adapters.pytorch.strategies.pipeline:Hybrid",
        "Pipelines of as many ranks as there are stages, side by side: DistributedDataParallel averages each stage.",
        model_parallel="stages",
        cut="layers where one value crosses",
        refuses={("schedule", "interleaved"): "DDP averages one stage of a rank; use 'pipeline', or schedule = '1f1b'"},
        microbatches="microbatches",
    ),
    _strategy(
        "parameter_server",
        "stagebench.adapters.pytorch.strategies.parameter_server:ParameterServer",
        "Ranks serve a share of the parameters each (torch.distributed.rpc): gradients go there, weights come back, "
        "all within the update.",
        separable=NO_COMMUNICATION,
        changing_rate=False,
        clips=False,
        keeps_rate="the servers update, by optimisers of their own, and take no rate from a worker",
    ),
    _strategy(
        "local_sgd",
        "stagebench.adapters.pytorch.strategies.ddp:LocalSGD",
        "Every rank trains alone; now and then, within the update, the models are averaged (PeriodicModelAverager).",
        synchronous=False,
        separable=NO_COMMUNICATION,
        periodic=True,
    ),
    Strategy(
        INFERENCE,
        "stagebench.adapters.pytorch.inference:TorchPredictor",
        "No training: answers of the network in eval mode; tuned: batch normalisations folded, channels last.",
        infers=True,
        distributed=False,
        refuses={
            **INFERRING,
            ("compile", "reduce-overhead"): OVERWRITES,
            ("compile", "max-autotune"): OVERWRITES,
        },
    ),
    Strategy(
        "pipeline_inference",
        "stagebench.adapters.pytorch.strategies.pipeline_inference:PipelinePredictor",
        "No training: the ranks hold the network in stages, as 'pipeline'; a query goes through them in microbatches, "
        "and its answers from the last rank to the first.",
        infers=True,
        model_parallel=True,
        cut="layers where one value crosses",
        microbatches="microbatches",
        refuses=INFERRING,
    ),
)


def _on_the_host(case: Configuration) -> str | None:
    """Why images that are read so cannot be decoded on a GPU, with the remedy; None when they can."""
    if case.input.mode == "memory":
        return "data_mode = 'memory' decodes before training begins, on the host; use data_mode = 'disk'"
    if case.input.augment == "random":
        return (
            "torch does not scale the boxes of random crops, which are no multiples of a pixel; use augment = 'centre'"
        )
    if case.input.on_error == "skip":
        return "a GPU finds that a file is damaged when its batch is there, too late to skip it; use on_error = 'fail'"
    return None


def _unscheduled(schedule: str, pieces: int, parts: int) -> str | None:
    """Why a schedule does not take so few or such pieces through the ranks of a pipeline; None if it does."""
    if schedule == "1f1b" and pieces < parts:
        return f"1f1b wants as many pieces as there are stages, {parts}; microbatches is {pieces}; or use gpipe"
    if schedule == "interleaved" and pieces % max(1, pieces // parts):
        return (
            f"microbatches = {pieces} do not go through {parts} interleaved ranks in equal rounds; ask for "
            f"{parts} or {2 * parts}"
        )
    return None


AUTO = ("auto", True, False)
COMPILE_MODES = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
THROUGH_HOSTS = ("ddp", "accumulate", "zero1", "local_sgd")  # what they exchange gloo takes from GPUs
REPLICATED = ("ddp", "accumulate", "zero1")  # those that wrap the network in DistributedDataParallel

# How layers are computed on CPUs: `stagebench.adapters.pytorch.candidates` has the ways, and times them.
CANDIDATES = {
    "products": Knob(
        ("auto", "torch", "onednn"),
        "auto",
        "What multiplies the float32 matrices of dense layers: PyTorch's BLAS (MKL), or oneDNN; auto: PyTorch's, and "
        "when tuned the faster one, timed on the case's shapes when the network is built.",
        needs=(
            Need("device", ("cpu",), "cuBLAS multiplies on GPUs", ("onednn",)),
            Need("precision", ("float32",), "PyTorch chooses what multiplies other numbers", ("onednn",)),
        ),
    ),
    "pointwise": Knob(
        ("auto", "torch", "onednn", "product"),
        "auto",
        "What computes float32 convolutions of 1x1: PyTorch's own choice, oneDNN's convolution, or its product over "
        "pixels; auto: PyTorch's choice, and when tuned the fastest, timed on the case's shapes.",
        needs=(
            Need("device", ("cpu",), "cuDNN convolves on GPUs", ("onednn", "product")),
            Need("precision", ("float32",), "PyTorch chooses what convolves other numbers", ("onednn", "product")),
        ),
    ),
    "huge_pages": Knob(
        ("auto", "on", "off"),
        "auto",
        "Whether large tensors ask Linux for huge pages (THP_MEM_ALLOC_ENABLE); auto: when tuned.",
        needs=(Need("device", ("cpu",), "tensors lie on the GPU", ("on",)),),
    ),
}


TIMED = ("products", "pointwise")  # of these knobs, those that are timed when tuned


def _with_kernel_knobs(timed: Knob) -> Knob:
    """Return one of the TIMED where there are the knobs `compile` and `onednn`, which overrule it."""
    by_onednn = timed.needs[0].of
    compiled = Need("compile", (False,), "a compiler chooses by itself", by_onednn)
    switched_off = Need("onednn", ("on",), "without oneDNN, PyTorch's own kernels compute", by_onednn)
    return replace(timed, needs=(*timed.needs, compiled, switched_off))


def times_layers(case: Configuration) -> bool:
    """Return whether `stagebench.adapters.pytorch.candidates.choose` may time layers, on the case's batch."""
    place = case.placement
    knobs = case.knobs
    left_open = "auto" in (knobs.get(name, "auto") for name in TIMED)
    tuned = case.tuning == "tuned" and place.device == "cpu" and case.precision == "float32"
    return tuned and left_open and knobs.get("onednn") != "off"


def huge_pages(case: Configuration) -> dict[str, str]:
    """PyTorch's variable for huge pages: 2 to 4 % of a step where Linux gives them on request (madvise)."""
    asked = case.knobs.get("huge_pages", "auto")
    wanted = case.tuning == "tuned" if asked == "auto" else asked == "on"
    return {"THP_MEM_ALLOC_ENABLE": "1"} if wanted and case.placement.device == "cpu" else {}


KNOBS = {
    **KERNEL_KNOBS,
    **CANDIDATES,
    **{name: _with_kernel_knobs(CANDIDATES[name]) for name in TIMED},
    "memory_format": Knob(
        ("auto", "contiguous", "channels_last"),
        "auto",
        "Layout of images and convolution weights; auto: channels_last when tuned and the network is convolutional.",
    ),
    "compile": Knob(
        (True, False, *COMPILE_MODES),
        False,
        "Run the network through torch.compile, in its default mode or another. On a CPU it needs a C++ compiler, on a "
        "GPU one for C, and Python.h.",
        ("single", "ddp", INFERENCE),
        needs=(Need("device", ("cuda",), "these modes are about GPUs", COMPILE_MODES),),
    ),
    "cuda_graph": Knob(
        (True, False),
        False,
        "Record the native step once, as a CUDA graph, and replay it; staged iterations are not recorded.",
        ("single",),
        needs=(
            Need("device", ("cuda",), "a graph is the GPU's"),
            Need("compile", (True, False), "those modes record graphs of their own"),
            Need("precision", ("float32", "tf32", "bfloat16", "float64"), "float16 may skip an update"),
        ),
    ),
    "checkpoint_segments": replace(
        SEGMENTS,
        strategies=("single", *REPLICATED, "fsdp"),
        needs=(
            Need("compile", (False,), "a compiler decides what is kept"),
            Need("cuda_graph", (False,), "a graph replays kernels, and draws no dropout again"),
        ),
    ),
    "copy_stream": Knob(
        ("auto", "on", "off"),
        "auto",
        "Whether batches are copied on a stream of their own, while the step before computes; auto: on when tuned.",
        needs=(Need("device", ("cuda",), "a CPU's batches lie where they are computed with", ("on",)),),
    ),
    "decode": Knob(
        ("host", "gpu"),
        "host",
        "Where image files are decoded and scaled: by the readers, or on the GPU by torchvision (nvJPEG), and readers "
        "only read. Synthetic data are the same under both.",
        needs=(Need("device", ("cuda",), "nvJPEG decodes on GPUs", ("gpu",)),),
    ),
    "bucket_cap_mb": Knob(
        ("auto", int),
        "auto",
        "MiB of a gradient bucket, also of the staged exchange; auto: DDP's own (first 1, then 25).",
        REPLICATED,
        least=1,
    ),
    "gradient_as_bucket_view": Knob(
        AUTO, "auto", "Gradients live in DDP's buckets, a copy less; auto: when tuned.", REPLICATED
    ),
    "forward_sync_buffers": Knob(
        AUTO, "auto", "Send rank 0's running statistics in forwards; auto: unless tuned.", REPLICATED
    ),
    "static_graph": Knob((True, False), False, "Tell DDP that every iteration uses the same parameters.", ("ddp",)),
    "compression": Knob(
        ("none", "fp16", "bf16", "powersgd"),
        "none",
        "What DDP and the staged exchange send instead of gradients: halves of their bits, or matrices of rank 1.",
        ("ddp",),
        relaxing=("fp16", "bf16", "powersgd"),
        needs=(
            Need("device", ("cuda",), "torch sends gradients as bf16 over NCCL alone; fp16 over both", ("bf16",)),
            Need("memory_format", ("auto", "contiguous"), "it takes gradients as matrices", ("powersgd",)),
        ),
    ),
    "microbatches": Knob(
        int,
        4,
        "Equal pieces that a batch is taken in, in training each normalised by itself.",
        ("accumulate", "pipeline", "hybrid", "pipeline_inference"),
        least=1,
    ),
    "schedule": Knob(
        ("gpipe", "1f1b", "interleaved"),
        "gpipe",
        "Order of the pieces; interleaved: 1f1b with several stages of each rank. The staged pass takes all forwards "
        "first.",
        ("pipeline", "hybrid"),
    ),
    "chunks": Knob(
        int,
        2,
        "Stages of each rank, taken in turns by the ranks.",
        ("pipeline",),
        least=2,
        needs=(Need("schedule", ("interleaved",), "otherwise a rank has one stage"),),
    ),
    "sequence": Knob(
        ("off", "on"),
        "off",
        "Whether layer normalisations and sums compute a share of the tokens on each rank, if shares are equal.",
        ("tensor_parallel",),
    ),
    "stages": Knob(int, 2, "Ranks, in a row, that hold one network of 'hybrid', at least 2.", ("hybrid",), least=2),
    "mode": Knob(
        ("sync", "async"),
        "sync",
        "Whether servers wait for all gradients or take them as they come.",
        ("parameter_server",),
        relaxing=("async",),
    ),
    "staleness": Knob(
        ("any", int),
        "any",
        "Steps that an asynchronous worker may be ahead of the slowest one before it waits (bounded staleness).",
        ("parameter_server",),
        least=0,
        needs=(Need("mode", ("async",), "it bounds asynchronous workers"),),
    ),
    "backups": Knob(
        int,
        0,
        "Workers that synchronous servers do not wait for in a step (backup workers): who comes late is dropped.",
        ("parameter_server",),
        least=0,
        relaxing=range(1, 1 << 20),
        needs=(
            Need("mode", ("sync",), "asynchronous servers wait for nobody"),
            Need("server_ranks", (1,), "several servers would each drop other workers' gradients of a step"),
        ),
    ),
    "server_ranks": Knob(("all", int), "all", "Ranks, from the first one, that serve.", ("parameter_server",), least=1),
    "period": Knob(int, 8, "Steps from one average of the models to the next, at least 2.", ("local_sgd",), least=2),
}

COMMUNICATOR = "stagebench.adapters.pytorch.comm:TorchCommunicator"
BACKENDS = (
    Backend("gloo", "torch.distributed's gloo, between CPUs.", COMMUNICATOR, "ddp", dtypes=DTYPES),
    Backend("nccl", "torch.distributed's NCCL, between GPUs.", COMMUNICATOR, "ddp", dtypes=DTYPES, device="cuda"),
)


class PyTorch(Adapter):
    """PyTorch on CPUs and CUDA devices, one alone or several together."""

    contract = 4
    name = "pytorch"
    title = "PyTorch"
    package = "stagebench.adapters.pytorch"
    requires = ("torch",)
    optional = ("PIL", "torchvision")  # to decode files on GPUs
    # CXX compiles TorchInductor's kernels.
    arithmetic_variables = ("ATEN_", "CXX", "PYTORCH_", "THP_", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_")
    other_variables = ("TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME")
    out_of_memory = (
        "DefaultCPUAllocator",
    )  # c10/core/impl/alloc_cpu.cpp: "can't allocate memory", "not enough memory"
    environment = "pytorch"
    requirements = "stagebench/adapters/environments/pytorch.txt"
    remedy = "stagebench env make pytorch"
    backends = BACKENDS
    kubernetes_job = "PyTorchJob"

    capabilities = Capabilities(
        strategies=STRATEGIES,
        devices=("cpu", "cuda"),
        precisions=("float32", "bfloat16", "float64"),
        device_precisions={"cuda": ("tf32", "float16")},
        optimisers=("sgd", "adam", "adamw"),
        knobs=KNOBS,
    )

    def unsupported(self, case: Configuration) -> str | None:
        """Refuse by the number of ranks and by pairs of knobs; DDP on one rank is allowed: it shows DDP's own cost."""
        backups = case.knobs["backups"]
        ranks = case.placement.ranks
        if 1 < ranks <= backups:
            return f"backups = {backups} of {ranks} workers leave none to wait for; ask for fewer"
        place = case.placement
        together = place.device == "cuda" and place.share_devices and place.ranks > 1
        if together and (case.strategy not in THROUGH_HOSTS or case.knobs["compression"] == "bf16"):
            return (
                "NCCL refuses ranks that share a GPU, and gloo does not exchange this between GPUs; share them under "
                f"{', '.join(THROUGH_HOSTS)}, without compression = 'bf16'"
            )
        if case.precision == "float16" and case.optimiser != "sgd":
            return (
                "float16 may skip an update, after which Adam's epsilon is not known to the host; use bfloat16 or sgd"
            )
        if case.knobs["cuda_graph"] and (case.optimiser != "sgd" or case.schedule.changing):
            return "a CUDA graph repeats the rate and the epsilon that it was recorded with; use sgd at one rate"
        if case.knobs["decode"] == "gpu" and (problem := _on_the_host(case)):
            return f"{problem}, or decode = 'host'"
        pieces = self.microbatches(case)
        parts = self.model_parallel_size(case)
        strategy = self.strategy(case)
        if strategy.model_parallel and parts == 1:
            alone = INFERENCE if strategy.infers else "single"
            return f"{case.strategy} holds one network on several ranks; ask for two ranks, or use {alone!r}"
        return _unscheduled(case.knobs["schedule"], pieces, parts)

    def parts(self, case: Configuration) -> int:
        chunks = case.knobs["chunks"] if case.knobs["schedule"] == "interleaved" else 1
        return self.model_parallel_size(case) * chunks

    def decoding(self, case: Configuration) -> str:
        return "nvJPEG upsamples colours differently from libjpeg" if case.knobs["decode"] == "gpu" else ""

    def tunes_to_batch(self, case: Configuration) -> bool:
        return case.strategy != "tensor_parallel" and not case.knobs.get("compile") and times_layers(case)

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        """Return a tuned CPU process's requests of the allocator; on GPUs cuBLAS's, in order to add up alike."""
        alike = FIXED_WORKSPACE if case.knobs.get("deterministic") == "on" else {}
        return {**keep_memory(case), **huge_pages(case), **alike}


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [PyTorch()]
