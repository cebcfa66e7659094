"""Device, threads, types of numbers, versions; how operations are chosen.

XLA sizes its pool of worker threads by NPROC, else by the cores that the process may use, and its own switch
`intra_op_parallelism_threads` reaches no pool of the CPU client; both it and XLA_FLAGS are read when the client is
made, at the first look at the devices.

Types and exactness by precision are decided here alone:

* `lax.Precision` matters for float32 alone, and XLA's libraries on GPUs differ in it: cuDNN's convolutions and cuBLAS's
  products take TF32 unless it is HIGHEST, Triton's products take it with DEFAULT only. So TF32 is DEFAULT.
* Mixed precision does what torch.autocast does: convolutions and matrix products have their inputs cast and return
  that type, and layers between keep it. Sums over many numbers, powers and the loss are computed in float32, in
  which parameters, gradients, running statistics and the optimiser's state are stored.
"""

import contextlib
import importlib.util
import os
from typing import Any, Dict, List, NamedTuple, Optional

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax import lax

from stagebench.suite.worker.contract import Setup, Unavailable
from stagebench.suite.worker.gpus import no_cuda, own_devices, uuids
from stagebench.suite.worker.member import Member, Notes
from stagebench.suite.worker.peaks import Yardstick, on_devices

PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
SERIAL = "--xla_cpu_multi_thread_eigen=false"  # no pool inside an operation: one thread for each device


class Arithmetic(NamedTuple):
    """The types and the exactness of one precision."""

    words: str
    stored: str = "float32"  # the type of parameters, gradients, statistics, images and loss
    product: str = "float32"  # the type that convolutions and products of matrices take and give
    exactness: lax.Precision = lax.Precision.DEFAULT
    scaled: bool = False  # gradients would vanish in the type of the products, so the loss is scaled

    def cast(self, tensor: Any) -> Any:
        """Cast a tensor to the type of a product's inputs."""
        return tensor.astype(self.product)


BY_NAME: Dict[str, Arithmetic] = {
    "float32": Arithmetic("lax.Precision.HIGHEST", exactness=lax.Precision.HIGHEST),
    "float64": Arithmetic("lax.Precision.HIGHEST", "float64", "float64", lax.Precision.HIGHEST),
    "tf32": Arithmetic("lax.Precision.DEFAULT of float32: TF32 where the device has it"),
    "bfloat16": Arithmetic(
        "mixed: convolutions and products in bfloat16, the rest stored in float32", product="bfloat16"
    ),
    "float16": Arithmetic(
        "mixed: convolutions and products in float16, the rest stored in float32; dynamic loss scaling",
        product="float16",
        scaled=True,
    ),
}


def wide(tensor: Any) -> Any:
    """Cast to float32 at least: half precision has too few digits for sums and powers."""
    return tensor.astype(jnp.promote_types(tensor.dtype, jnp.float32))


class Choices(NamedTuple):
    """The choices that `lower` knows."""

    arithmetic: Arithmetic = BY_NAME["float32"]
    for_cpus: bool = False  # everything in `kernels`: it was measured on CPUs, and GPUs have cuDNN
    compared: bool = False  # max pooling by comparisons
    segments: int = 1  # of which all but the last compute their activations again in the backward

    @property
    def words(self) -> str:
        """The lowering in words, for a record's notes."""
        convolutions = "lax.conv_general_dilated"
        if self.for_cpus:
            convolutions = "products of matrices where faster, groups one by one"
        return f"{convolutions}, lax.reduce_window" + (", max pooling by comparisons" if self.compared else "")


def choices_of(setup: Setup) -> Choices:
    """Return the choices of a setup: `tuned` on a CPU takes everything in `kernels`.

    XLA adds up the gradients of max pooling by a scatter with atomics. It refuses to make that deterministic, or (since
    jaxlib 0.11) makes it a slow loop; comparisons are deterministic anyway.
    """
    for_cpus = setup.tuned and setup.device == "cpu"
    deterministic = setup.knobs.get("deterministic") == "on"
    segments = int(setup.knobs.get("checkpoint_segments", 1))
    return Choices(BY_NAME[setup.precision], for_cpus, for_cpus or deterministic, segments)


class OnDevices(Member):
    """The devices that a process drives, how operations are chosen for them, and what they can do at most."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._choices = choices_of(setup)
        self._dtype = np.dtype(self._choices.arithmetic.stored)

    def open_devices(self) -> None:
        """Set threads and devices, for `start`; Unavailable says what this machine lacks."""
        self._devices = prepare(self.setup)

    def peak_device_bytes(self) -> Optional[int]:
        """Return None on CPUs, whose allocator keeps no statistics."""
        found = [device.memory_stats() for device in self._devices]
        return sum(stats["peak_bytes_in_use"] for stats in found) if all(found) else None

    def yardstick(self) -> Optional[Yardstick]:
        return super().yardstick() or yardstick(self.setup, self._devices)

    def notes(self) -> Notes:
        notes = super().notes()
        if self.setup.device == "cpu":
            notes["threads"] = f"NPROC {self.setup.threads * self.setup.devices}"
            if self.setup.threads == 1:
                notes["threads"] += f", {SERIAL}"
        notes["layout"] = "NHWC, HWIO, (in, out), (vocabulary, width)"
        notes["lowering"] = self._choices.words
        notes["precision"] = self._choices.arithmetic.words
        return notes


def prepare(setup: Setup) -> List[Any]:
    """Return the devices that this process drives; Unavailable names what this machine lacks."""
    jax.config.update("jax_enable_x64", setup.precision == "float64")
    if setup.device == "cuda":
        return cuda(setup)
    os.environ["NPROC"] = str(setup.threads * setup.devices)
    if setup.threads == 1 and SERIAL not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = (f"{os.environ.get('XLA_FLAGS', '')} {SERIAL}").strip()
    jax.config.update("jax_platforms", "cpu")
    with contextlib.suppress(RuntimeError):  # an existing client keeps its devices: they are counted below
        jax.config.update("jax_num_cpu_devices", setup.devices)
    # On one device a step's call returns at once, as it does by default; several would overlap their exchanges (pmap).
    jax.config.update("jax_cpu_enable_async_dispatch", setup.devices == 1)
    found = jax.devices("cpu")
    if len(found) < setup.devices:
        raise Unavailable(
            f"{setup.devices} devices were asked for and JAX has {len(found)} on the CPU; jax_num_cpu_devices "
            "came too late, the client had been made"
        )
    return found[: setup.devices]


def cuda(setup: Setup) -> List[Any]:
    visible = len(uuids())
    if visible:
        # Only this rank's: XLA sets up, and takes memory of, every device that it finds.
        jax.config.update("jax_cuda_visible_devices", ",".join(map(str, own_devices(setup, visible))))
    try:
        found = jax.devices("cuda")
    except RuntimeError as error:
        there = any(importlib.util.find_spec(plugin) for plugin in PLUGINS)
        remedy = "see whether nvidia-smi lists a device and its driver" if there else "install its plugin (jax[cuda13])"
        raise no_cuda(f"JAX {jax.__version__} reports {' '.join(str(error).split())[:200]}", remedy)
    if len(found) == setup.devices:
        return found
    return [found[number] for number in own_devices(setup, len(found))]


def yardstick(setup: Setup, devices: List[Any]) -> Yardstick:
    """Measure in the type and the exactness of the networks' products."""
    arithmetic = BY_NAME[setup.precision]

    def put(array: Any, dtype: str, device: Any) -> Any:
        return jax.device_put(array.astype(jnp.dtype(dtype)), device)

    product = jax.jit(lambda value: lax.dot(value, value, precision=arithmetic.exactness))
    copy = jax.jit(jnp.invert)
    return on_devices(f"JAX {jax.__version__}", arithmetic.product, devices, put, product, copy, jax.block_until_ready)


def versions(devices: List[Any]) -> Dict[str, str]:
    found = {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
    found["xla"] = " ".join(devices[0].client.platform_version.split())  # a GPU's has two lines
    if devices[0].platform != "cpu":
        found.update(cuda_versions(), gpu=devices[0].device_kind)
    return found


def cuda_versions() -> Dict[str, str]:
    """Return versions of the libraries that JAX's CUDA plugin has loaded, in PyTorch's form; {} if unknown."""
    for plugin in PLUGINS:
        with contextlib.suppress(ImportError, AttributeError, RuntimeError):
            library = importlib.import_module(f"{plugin}._versions")
            cuda = library.cuda_runtime_get_version()  # 13000 is 13.0
            return {"cuda": f"{cuda // 1000}.{cuda % 1000 // 10}", "cudnn": str(library.cudnn_get_version())}
    return {}
