"""PyTorch as the controller sees it: what it can do and what its processes need."""

from pathlib import Path

from suite.adapter import Adapter, Capabilities, Knob, Strategy
from suite.allocator import keep_memory
from suite.case import Case
from suite.hooks import hookimpl

LAUNCHERS = ("local", "mpiexec", "ssh")

STRATEGIES = (
    Strategy("single", "One process, no exchange.", LAUNCHERS, distributed=False),
    Strategy("ddp", "DistributedDataParallel: buckets are all-reduced (gloo, NCCL) during the backward.", LAUNCHERS),
    Strategy(
        "dp",
        "DataParallel: one process scatters the batch and the weights over its GPUs in every step.",
        LAUNCHERS,
        distributed=False,
        several_devices=True,
        # The weights are sent in the forward, the gradients summed up in the backward.
        separable=("io", "h2d", "forward", "backward", "update"),
    ),
)

DDP_KNOBS = {
    "bucket_cap_mb": Knob(
        ("auto", int),
        "auto",
        "Size of DDP's gradient buckets in MiB, at least 1, and of the staged exchange's; auto: DDP's own (a first "
        "bucket of 1, then 25).",
    ),
    "static_graph": Knob((True, False), False, "Tell DDP that every iteration uses the same parameters."),
    "gradient_as_bucket_view": Knob(
        ("auto", True, False), "auto", "Gradients live in DDP's buckets, one copy less; auto: when tuned."
    ),
    "forward_sync_buffers": Knob(
        ("auto", True, False), "auto", "Send rank 0's running statistics before every forward; auto: unless tuned."
    ),
}

KNOBS = {
    "memory_format": Knob(
        ("auto", "contiguous", "channels_last"),
        "auto",
        "Layout of images and convolution weights; auto: channels_last when tuned and the network is convolutional.",
    ),
    "compile": Knob(bool, False, "Run the network through torch.compile (on a CPU it needs a C++ compiler)."),
    **DDP_KNOBS,
}


class PyTorch(Adapter):
    """PyTorch on CPUs and CUDA devices, alone, under DDP or under DataParallel."""

    name = "pytorch"
    title = "PyTorch"
    trainer = "adapters.pytorch.worker:PyTorchTrainer"
    requires = ("torch",)
    environment = "pytorch"
    remedy = "tox run -e pytorch"

    @property
    def capabilities(self) -> Capabilities:
        """Whatever the machine; a missing device is the worker's to report."""
        return Capabilities(
            strategies=STRATEGIES,
            devices=("cpu", "cuda"),
            precisions=("float32", "bfloat16", "float64"),
            optimisers=("sgd", "adam"),
            knobs=dict(KNOBS),
        )

    def unsupported(self, case: Case) -> str | None:
        """Knobs that would change nothing, or cannot be; DDP on one rank is allowed, it shows what DDP itself costs."""
        if case.strategy == "dp" and case.placement.device == "cpu":
            return (
                "torch.nn.DataParallel knows no CPU devices: it would run the whole batch on one, unsplit and without "
                "a word; use 'ddp' with several ranks, or device = 'cuda'"
            )
        if case.strategy == "dp" and case.knobs.get("compile"):
            return "torch.nn.DataParallel copies the network to every device anew, which a compiled one does not allow"
        if case.strategy != "ddp":
            idle = [name for name, knob in DDP_KNOBS.items() if case.knobs.get(name, knob.default) != knob.default]
            if idle:
                return f"the knob {idle[0]!r} belongs to the strategy 'ddp' and changes nothing under {case.strategy!r}"
        size = case.knobs.get("bucket_cap_mb", "auto")
        if size != "auto" and size < 1:
            return f"bucket_cap_mb is {size}; a bucket holds at least 1 MiB"
        return None

    def environ(self, case: Case, interpreter: Path) -> dict[str, str]:
        """What a tuned CPU process wants of the allocator; it must stand before the process starts."""
        return keep_memory(case)


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    """The PyTorch adapter."""
    return [PyTorch()]
