"""PyTorch as the controller sees it: what it can do and what its processes need."""

from pathlib import Path
from typing import Any

from suite.adapter import Adapter, Capabilities, Knob, Strategy
from suite.allocator import keep_memory
from suite.case import Case
from suite.hooks import hookimpl

LAUNCHERS = ("local", "mpiexec")

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
    Strategy(
        "accumulate",
        "DistributedDataParallel that takes its batch in pieces and exchanges with the last one (no_sync before); the "
        "staged pass runs all forwards before the first backward.",
        LAUNCHERS,
    ),
)

DDP_KNOBS = {
    "bucket_cap_mb": Knob(
        ("auto", int),
        "auto",
        "Size of DDP's gradient buckets in MiB, at least 1, and of the staged exchange's; auto: DDP's own (a first "
        "bucket of 1, then 25).",
    ),
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
    "static_graph": Knob((True, False), False, "Tell DDP that every iteration uses the same parameters."),
    "compression": Knob(
        ("none", "fp16", "bf16", "powersgd"),
        "none",
        "What DDP and the staged exchange send instead of gradients: halves of their bits, or matrices of rank 1.",
    ),
    "microbatches": Knob(int, 4, "Equal pieces that a batch is taken in, each normalised by itself."),
}

# Of the knobs that not every strategy has, those whom they belong to.
OWNERS = {
    "compile": ("single", "ddp"),
    **dict.fromkeys(DDP_KNOBS, ("ddp", "accumulate")),
    "static_graph": ("ddp",),
    "compression": ("ddp",),
    "microbatches": ("accumulate",),
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

    def exact(self, case: Case) -> bool:
        """Not where gradients are rounded on their way."""
        return super().exact(case) and _value(case, "compression") == "none"

    def microbatches(self, case: Case) -> int:
        """As the knob says, for those that take the batch in pieces."""
        return int(_value(case, "microbatches")) if case.strategy in OWNERS["microbatches"] else 1

    def unsupported(self, case: Case) -> str | None:
        """Knobs that would change nothing, or cannot be; DDP on one rank is allowed, it shows what DDP itself costs."""
        if case.strategy == "dp" and case.placement.device == "cpu":
            return (
                "torch.nn.DataParallel knows no CPU devices: it would run the whole batch on one, unsplit and without "
                "a word; use 'ddp' with several ranks, or device = 'cuda'"
            )
        if case.strategy == "dp" and case.knobs.get("compile"):
            return "torch.nn.DataParallel copies the network to every device anew, which a compiled one does not allow"
        return _idle(case) or _wrong_value(case) or self._uneven(case)

    def _uneven(self, case: Case) -> str | None:
        pieces, batch = self.microbatches(case), case.batch * self.parts(case)
        if pieces < 1:
            return f"microbatches is {pieces}; a batch is taken in at least 1 piece"
        if batch % pieces:
            return f"a batch of {batch} does not divide into microbatches = {pieces} equal pieces; choose a divisor"
        return None

    def environ(self, case: Case, interpreter: Path) -> dict[str, str]:
        """What a tuned CPU process wants of the allocator; it must stand before the process starts."""
        return keep_memory(case)


def _value(case: Case, name: str) -> Any:
    return case.knobs.get(name, KNOBS[name].default)


def _idle(case: Case) -> str | None:
    for name, owners in OWNERS.items():
        if case.strategy not in owners and _value(case, name) != KNOBS[name].default:
            whose = " and ".join(repr(owner) for owner in owners)
            kind = "strategy" if len(owners) == 1 else "strategies"
            return f"the knob {name!r} belongs to the {kind} {whose} and changes nothing under {case.strategy!r}"
    return None


def _wrong_value(case: Case) -> str | None:
    size = _value(case, "bucket_cap_mb")
    if size != "auto" and size < 1:
        return f"bucket_cap_mb is {size}; a bucket holds at least 1 MiB"
    if _value(case, "compression") == "bf16" and case.placement.device == "cpu":
        return "torch sends gradients as bf16 over NCCL alone; use compression = 'fp16', or device = 'cuda'"
    if _value(case, "compression") == "powersgd" and _value(case, "memory_format") == "channels_last":
        return "powersgd takes gradients as matrices, which they are not in channels_last; leave memory_format to auto"
    return None


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    """The PyTorch adapter."""
    return [PyTorch()]
