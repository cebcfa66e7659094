"""TensorFlow as the controller sees it: what it can do and what its processes need."""

import os
from pathlib import Path

from stagebench.suite.contracts.adapter import INFERENCE, Adapter, Backend, Capabilities, Format, Strategy
from stagebench.suite.contracts.case import DTYPES, Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.kernels import KERNEL_KNOBS, keep_memory, variables
from stagebench.suite.contracts.knobs import Knob, Need

NO_KERNELS = "the servers update, by TensorFlow's own kernels; leave the knob xla at 'auto'"
NOT_COMPILED = "Keras updates, and compiles no step of several devices; leave the knob xla at 'auto'"
OWN_OPTIMISERS = "the servers update, and the rate is a constant of the functions that do"
SERVERS_UPDATE = {("xla", "update"): NO_KERNELS, ("xla", "step"): NO_KERNELS}

STRATEGIES = (
    Strategy(
        "single",
        "stagebench.adapters.tensorflow.replicas:Replicas",
        "One device, no exchange.",
        distributed=False,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "mirrored",
        "stagebench.adapters.tensorflow.strategies.mirrored:Mirrored",
        "MirroredStrategy: one process drives several devices (CPU: logical ones) and sums by the knob cross_device.",
        distributed=False,
        several_devices=True,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "keras_fit",
        "stagebench.adapters.tensorflow.strategies.keras_fit:KerasFit",
        "The same by Keras: its model.fit and its optimiser, on a data set that MirroredStrategy distributes.",
        distributed=False,
        several_devices=True,
        separable=("forward", "backward", "communication", "update"),  # a step takes its batch itself
        changing_rate=True,
        refuses={("xla", "update"): NOT_COMPILED, ("xla", "step"): NOT_COMPILED},
    ),
    Strategy(
        "multiworker_mirrored",
        "stagebench.adapters.tensorflow.strategies.mirrored:MultiWorkerMirrored",
        "MultiWorkerMirroredStrategy: one device a rank, all-reduce by the knob collective.",
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "parameter_server",
        "stagebench.adapters.tensorflow.strategies.parameter_server:ParameterServer",
        "Parameter servers update as each worker's gradients come, and send weights back (between-graph replication).",
        synchronous=False,
        separable=("io", "h2d", "forward", "backward", "communication"),
        keeps_rate=OWN_OPTIMISERS,
        refuses=SERVERS_UPDATE,
    ),
    Strategy(
        "coordinator",
        "stagebench.adapters.tensorflow.strategies.coordinator:Coordinator",
        "ParameterServerStrategy with its ClusterCoordinator: one process schedules a function for each share of the "
        "batch, worker processes (CPUs) run them beside each other, parameter servers update as they come.",
        distributed=False,
        several_devices=True,
        synchronous=False,
        separable=("io", "h2d", "forward", "update"),  # a worker's function cannot be cut: it keeps nothing
        keeps_rate=OWN_OPTIMISERS,
        refuses={
            **SERVERS_UPDATE,
            ("device", "cuda"): "a coordinator's workers are started on CPUs only; ask for device = 'cpu', or for the "
            "strategy 'parameter_server'",
        },
    ),
    Strategy(
        "model_parallel",
        "stagebench.adapters.tensorflow.strategies.model_parallel:ModelParallel",
        "One process, one network: its layers over several devices, alike in multiply-accumulates; they take turns, or "
        "work side by side on the microbatches of the knob.",
        distributed=False,
        several_devices=True,
        separable=("io", "h2d", "forward", "backward", "update"),
        model_parallel=True,
        cut="layers",
        microbatches="microbatches",
        changing_rate=True,
        refuses={
            ("xla", "step"): "XLA compiles a step for one device, and model_parallel has several; xla = 'update' does"
        },
    ),
    Strategy(
        INFERENCE,
        "stagebench.adapters.tensorflow.inference:TensorFlowPredictor",
        "No training: answers of the network as one tf.function; tuned: batch normalisations folded, filters constants "
        "of the graph, a transformer compiled by XLA.",
        infers=True,
        distributed=False,
        refuses={("xla", "update"): "inference updates nothing; xla = 'step' compiles the whole network"},
    ),
    Strategy(
        "model_parallel_inference",
        "stagebench.adapters.tensorflow.strategies.model_parallel_inference:StagedPredictor",
        "No training: one process, one network in stages over several devices, as 'model_parallel'; a query goes "
        "through them in microbatches, in one tf.function.",
        infers=True,
        distributed=False,
        several_devices=True,
        model_parallel=True,
        cut="layers",
        microbatches="microbatches",
        refuses=dict.fromkeys(
            (("xla", "update"), ("xla", "step")), "XLA compiles a network for one device; leave the knob xla at 'auto'"
        ),
    ),
)

BETWEEN_GPUS = Need("device", ("cuda",), "NCCL exchanges between GPUs only", ("nccl",))
KNOBS = {
    **KERNEL_KNOBS,
    "xla": Knob(
        ("auto", "off", "update", "step"),
        "auto",
        "What XLA compiles: nothing, the update, or the whole step but the exchange; "
        "auto: when tuned the update, and of a transformer on one device the whole step, whose layers are not timed.",
    ),
    "layout": Knob(
        ("auto", "NHWC", "NCHW"), "auto", "Layout of images and activations; auto: NHWC, and NCHW when tuned on a GPU."
    ),
    "pack_mb": Knob(
        ("auto", int),
        "auto",
        "MiB of gradients joined to one all-reduce; auto: TensorFlow's own choice.",
        strategies=("multiworker_mirrored",),
        least=1,
    ),
    "cross_device": Knob(
        ("auto", "nccl", "hierarchical", "reduction_to_one"),
        "auto",
        "How gradients are summed: by NCCL (GPUs), by copies within two halves and then between them, or all on one "
        "device; auto: NCCL on GPUs, reduction_to_one on CPUs.",
        strategies=("mirrored", "keras_fit"),
        needs=(BETWEEN_GPUS,),
    ),
    "collective": Knob(
        ("auto", "ring", "nccl"),
        "auto",
        "How gradients are summed: by a ring over gRPC, or by NCCL (GPUs); auto: NCCL on GPUs, ring on CPUs.",
        strategies=("multiworker_mirrored",),
        needs=(BETWEEN_GPUS,),
    ),
    "servers": Knob(
        int, 1, "Parameter servers, all on the first host.", strategies=("parameter_server", "coordinator"), least=1
    ),
    "microbatches": Knob(
        int,
        1,
        "Equal pieces in which the batch is taken, one behind the other, in training each normalised by itself.",
        strategies=("model_parallel", "model_parallel_inference"),
        least=1,
    ),
}

BACKENDS = (
    Backend(
        "tf-ring",
        "TensorFlow's collectives between CPUs: a ring over gRPC.",
        "stagebench.adapters.tensorflow.comm:TensorFlowCommunicator",
        "multiworker_mirrored",
        ("all-reduce", "broadcast", "all-gather"),
        DTYPES,
    ),
)


class TensorFlow(Adapter):
    """TensorFlow 2 on CPUs and CUDA."""

    contract = 4
    name = "tensorflow"
    title = "TensorFlow"
    package = "stagebench.adapters.tensorflow"
    requires = ("tensorflow", "keras")
    arithmetic_variables = ("KERAS_", "TF2_", "TF_", "XLA_")
    other_variables = ("TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL", "TF_CLI_", "TF_VAR_")  # the latter two: Terraform's
    # bfc_allocator and the CPU's; a copy to a full GPU (tensorflow/tensorflow#7025); XLA.
    out_of_memory = ("OOM when allocating", "Dst tensor is not initialized", "Failed to allocate request for")
    environment = "tensorflow"
    requirements = "stagebench/adapters/environments/tensorflow.txt"
    remedy = "stagebench env make tensorflow"
    backends = BACKENDS

    capabilities = Capabilities(
        strategies=STRATEGIES,
        devices=("cpu", "cuda"),
        precisions=("float32", "float64"),
        knobs=KNOBS,
        optimisers=("sgd", "adam", "adamw"),
        formats=(Format("tfrecord", "TFRecord: tf.train.Example with the encoded image, read by tf.data."),),
    )

    def unsupported(self, case: Configuration) -> str | None:
        """Return what the number of devices, or a knob with a device, excludes."""
        knobs, devices, on_cpu = case.knobs, case.placement.devices, case.placement.device == "cpu"
        if knobs["cross_device"] == "hierarchical" and devices % 2:
            return (
                f"hierarchical copies sum two equal halves of the devices and forget the last of {devices}; ask for an "
                "even number, or for reduction_to_one"
            )
        if knobs["layout"] == "NCHW" and on_cpu and knobs["xla"] != "step":
            return "TensorFlow's CPU kernels pool and convolve NHWC only; NCHW on a CPU needs xla = 'step'"
        return None

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        """Return variables that are read when TensorFlow is loaded: log level, oneDNN, Keras, a tuned CPU's malloc."""
        # 1 leaves out INFO (which CPU features were compiled in), not warnings. oneDNN is the default on most x86
        # processors: written down, it is the same on all.
        kernels = variables(case, "TF_CUDNN_USE_AUTOTUNE", "TF_ENABLE_ONEDNN_OPTS")
        # Without a home Keras reads no keras.json, by which a person, or in /tmp another one, chooses its types.
        # A limit of 0 is none; by another one `fit` would end early, and steps would wait for ever.
        keras = {"KERAS_BACKEND": "tensorflow", "KERAS_HOME": os.devnull, "TF_USE_LEGACY_KERAS": "0"}
        keras.update(KERAS_MAX_EPOCHS="0", KERAS_MAX_STEPS_PER_EPOCH="0")
        return {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "1", **keras, **kernels, **keep_memory(case)}

    def sidecars(self, case: Configuration) -> tuple[tuple[str, ...], ...]:
        """Return parameter servers and a coordinator's workers, each with its job, number, all counts and threads."""
        if case.strategy not in KNOBS["servers"].strategies:
            return ()
        servers, placement = case.knobs["servers"], case.placement
        chiefs, workers = (0, placement.ranks) if self.strategy(case).distributed else (1, placement.devices)
        counts = (chiefs, workers, servers, placement.threads)
        beside = [("worker", number) for number in range(workers if chiefs else 0)]
        beside += [("ps", number) for number in range(servers)]
        return tuple(("adapters/tensorflow/server.py", job, *map(str, (number, *counts))) for job, number in beside)


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [TensorFlow()]
