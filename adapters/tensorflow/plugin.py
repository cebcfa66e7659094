"""TensorFlow as the controller sees it: what it can do and what its processes need."""

from pathlib import Path

from suite.adapter import Adapter, Capabilities, Format, Knob, Strategy
from suite.allocator import keep_memory
from suite.case import Case
from suite.hooks import hookimpl

LAUNCHERS = ("local", "mpiexec", "ssh")

STRATEGIES = (
    Strategy("single", "One device, no exchange.", LAUNCHERS, distributed=False),
    Strategy(
        "mirrored",
        "MirroredStrategy: one process drives several devices (CPU: logical ones; GPUs: NCCL).",
        LAUNCHERS,
        distributed=False,
        several_devices=True,
    ),
    Strategy(
        "multiworker_mirrored",
        "MultiWorkerMirroredStrategy: one device a rank, collective all-reduce (CPU: ring over gRPC; GPUs: NCCL).",
        LAUNCHERS,
    ),
)

KNOBS = {
    "xla": Knob(
        ("auto", "off", "update", "step"),
        "auto",
        "What XLA compiles: nothing, the update, or the whole step but the exchange; auto: the update when tuned.",
    ),
    "layout": Knob(
        ("auto", "NHWC", "NCHW"),
        "auto",
        "Layout of images and activations; auto: NHWC, and NCHW when tuned on a GPU.",
    ),
    "pack_mb": Knob(
        ("auto", int),
        "auto",
        "MiB of gradients joined to one all-reduce (multiworker_mirrored), at least 1; auto: TensorFlow's own choice.",
    ),
}


class TensorFlow(Adapter):
    """TensorFlow 2 on CPUs and CUDA devices, alone or under its mirrored strategies."""

    name = "tensorflow"
    title = "TensorFlow"
    trainer = "adapters.tensorflow.worker:TensorFlowTrainer"
    requires = ("tensorflow",)
    environment = "tensorflow"
    remedy = "tox run -e tensorflow"

    @property
    def capabilities(self) -> Capabilities:
        """Whatever the machine; a missing device is the worker's to report."""
        return Capabilities(
            strategies=STRATEGIES,
            devices=("cpu", "cuda"),
            precisions=("float32", "float64"),
            knobs=dict(KNOBS),
            optimisers=("sgd", "adam"),
            formats=(Format("tfrecord", "TFRecord: tf.train.Example with the encoded image, read by tf.data."),),
        )

    def unsupported(self, case: Case) -> str | None:
        """Knobs that would change nothing, or that TensorFlow has no kernels for."""
        pack = case.knobs.get("pack_mb", "auto")
        if pack != "auto" and case.strategy != "multiworker_mirrored":
            return (
                "the knob 'pack_mb' belongs to the strategy 'multiworker_mirrored' and changes nothing under "
                f"{case.strategy!r}"
            )
        if pack != "auto" and pack < 1:
            return f"pack_mb is {pack}; a pack holds at least 1 MiB"
        knobs = {name: case.knobs.get(name, "auto") for name in ("layout", "xla")}
        if knobs["layout"] == "NCHW" and case.placement.device == "cpu" and knobs["xla"] != "step":
            return "TensorFlow's CPU kernels pool and convolve NHWC only; NCHW on a CPU needs xla = 'step'"
        return None

    def environ(self, case: Case, interpreter: Path) -> dict[str, str]:
        """What must stand before TensorFlow is loaded: its log level, oneDNN, and for a tuned CPU the allocator's."""
        # 1 leaves out INFO (which CPU features were compiled in), not warnings. oneDNN is the default on most x86
        # processors: written down, it is the same on all.
        return {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "1", **keep_memory(case)}


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    """The TensorFlow adapter."""
    return [TensorFlow()]
