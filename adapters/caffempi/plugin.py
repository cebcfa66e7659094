"""The Caffe-MPI-style trainer, as the controller sees it."""

from pathlib import Path

from stagebench.adapters.open_mpi import GIVE_WAY
from stagebench.adapters.pytorch.plugin import CANDIDATES, INFERRING, PyTorch, huge_pages, times_layers
from stagebench.suite.contracts.adapter import INFERENCE, Adapter, Backend, Capabilities, Format, Strategy
from stagebench.suite.contracts.case import FLOAT32, Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.kernels import FIXED_WORKSPACE, KERNEL_KNOBS
from stagebench.suite.contracts.knobs import Knob, Need

# As stagebench.suite.contracts.kernels, stricter: nothing is mapped, nothing given back, the heap grows in steps of 64
# MiB.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 26)}

ON_HOST = {
    ("staging", "none"): "its sums are formed in host memory, from what ranks send each other there; take staging = "
    "'pinned', or 'data_parallel', which leaves the sum to the MPI library"
}

STRATEGIES = (
    Strategy(
        "single",
        "stagebench.adapters.caffempi.base:Single",
        "One rank without MPI.",
        distributed=False,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "data_parallel",
        "stagebench.adapters.caffempi.strategies.synchronous:DataParallel",
        "Every rank a replica; a ring over MPI sums the gradients, every rank updates.",
        mpi=True,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "two_level",
        "stagebench.adapters.caffempi.strategies.synchronous:TwoLevel",
        "The same sum in two levels: a node's ranks to its first one, a ring over the nodes, back to the node's ranks.",
        mpi=True,
        changing_rate=True,
        clips=True,
        refuses=ON_HOST,
    ),
    Strategy(
        "parameter_server",
        "stagebench.adapters.caffempi.strategies.synchronous:ParameterServer",
        "Every rank pushes to rank 0, which sums and sends back; every rank updates (MXNet's dist_sync).",
        mpi=True,
        changing_rate=True,
        clips=True,
        refuses=ON_HOST,
    ),
    Strategy(
        "parameter_server_async",
        "stagebench.adapters.caffempi.strategies.parameter_server_async:ParameterServerAsync",
        "Rank 0 updates by each rank's gradients as they come, and sends the weights back: one stage (dist_async).",
        mpi=True,
        synchronous=False,
        separable=("io", "h2d", "forward", "backward", "communication"),
        keeps_rate="rank 0 updates for all, and takes no rate from the others",
        refuses={
            ("staging", "none"): "its server's weights lie in host memory, where they are updated by whichever "
            "gradients come; take staging = 'pinned'"
        },
    ),
    Strategy(
        INFERENCE,
        "stagebench.adapters.caffempi.inference:CaffeMPIPredictor",
        "No training: the net's forward, which keeps nothing; tuned: PyTorch's adapter's fused operators.",
        infers=True,
        distributed=False,
        refuses={**INFERRING},
    ),
)

EXCHANGING = ("data_parallel", "two_level", "parameter_server", "parameter_server_async")
KNOBS = {
    **CANDIDATES,
    "cudnn_autotune": KERNEL_KNOBS["cudnn_autotune"],
    "deterministic": KERNEL_KNOBS["deterministic"],
    "overlap": Knob(
        ("auto", "none", "layerwise", "merged"),
        "auto",
        "when gradients leave: after backward, as each layer's backward ends, or so in groups chosen from measured "
        "start-up and bandwidth (auto: merged when tuned, else layerwise)",
        EXCHANGING,
    ),
    "progress": Knob(
        ("auto", "layers", "thread"),
        "auto",
        "who brings messages forward while a rank computes: its training thread after each layer, or a thread of its "
        "own (auto: the thread when ranks lie on several nodes)",
        EXCHANGING,
    ),
    "node_ranks": Knob(
        ("auto", int),
        "auto",
        "ranks in a row that two_level takes for a node (auto: those that share memory)",
        ("two_level",),
        least=1,
    ),
    "staging": Knob(
        ("auto", "pinned", "none"),
        "auto",
        "how a GPU's gradients come to MPI: by copies through pinned host memory, beside the backward pass (auto), or "
        "not at all: a CUDA-aware MPI library takes them from the device, and the rank waits for each sum",
        EXCHANGING,
        needs=(Need("device", ("cuda",), "what processors compute lies in host memory anyhow"),),
    ),
    "memory_format": Knob(
        ("auto", "contiguous", "channels_last"), "auto", "layout of images (auto: channels_last when tuned)"
    ),
}

LMDB = Format(
    "lmdb",
    "LMDB, Caffe's database: Caffe's Datum under the sample's number, read by parallel threads from mapped memory",
    kinds=("folder", "arrays"),
    ordered=True,
)

COMMUNICATOR = "stagebench.adapters.caffempi.comm:MPICommunicator"
LIBRARIES = {"openmpi5": "Open MPI 5", "openmpi4": "Open MPI 4", "mpich": "MPICH"}  # environments mpi-NAME: titles
HALF = (FLOAT32, "float16")  # MPI's optional type, which Open MPI 4 has not; bfloat16 no library has yet
BACKENDS = (
    Backend(
        "mpi4py", "MPI through mpi4py, in this adapter's own environment.", COMMUNICATOR, "data_parallel", dtypes=HALF
    ),
    *(
        Backend(
            f"mpi4py-{name}",
            f"{title} through mpi4py, in an environment with nothing else.",
            COMMUNICATOR,
            "data_parallel",
            dtypes=HALF if name != "openmpi4" else (FLOAT32,),
            environment=f"mpi-{name}",
            requires=("mpi4py",),
            programs=("mpiexec",),
            remedy=f"stagebench env make mpi-{name}",
            requirements=f"stagebench/adapters/environments/mpi-{name}.txt",
        )
        for name, title in LIBRARIES.items()
    ),
)


class CaffeMPI(Adapter):
    """Caffe-MPI's design: a net of layers with explicit backward, Caffe's solver, gradients over MPI; CPUs and GPUs."""

    contract = 4
    name = "caffempi"
    title = "Caffe-MPI style"
    package = "stagebench.adapters.caffempi"
    requires = ("torch", "mpi4py", "lmdb")
    builds_on = ("stagebench.adapters.pytorch",)  # its operators, and how they are chosen
    optional = PyTorch.optional
    arithmetic_variables = PyTorch.arithmetic_variables
    other_variables = PyTorch.other_variables
    out_of_memory = PyTorch.out_of_memory
    environment = "caffempi"
    requirements = "stagebench/adapters/environments/caffempi.txt"
    remedy = "stagebench env make caffempi"
    backends = BACKENDS

    capabilities = Capabilities(
        strategies=STRATEGIES,
        devices=("cpu", "cuda"),
        precisions=("float32", "float64"),
        device_precisions={"cuda": ("tf32",)},
        optimisers=("sgd", "adam", "adamw"),
        knobs=KNOBS,
        formats=(LMDB,),
    )

    def tunes_to_batch(self, case: Configuration) -> bool:
        return times_layers(case)

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        """All give way while they wait; tuned runs also keep the memory they were given."""
        kept = KEEP_MEMORY if case.tuning == "tuned" else {}
        alike = FIXED_WORKSPACE if case.knobs.get("deterministic") == "on" else {}
        return {**GIVE_WAY, **kept, **huge_pages(case), **alike}


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [CaffeMPI()]
