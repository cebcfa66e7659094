"""Device, threads, precision, versions: everything that must be set before XLA's client is made.

XLA sizes its pool of worker threads by NPROC, else by the cores that the process may use, and its own switch
`intra_op_parallelism_threads` reaches no pool of the CPU client; both it and XLA_FLAGS are read when the client is
made, at the first look at the devices.
"""

import contextlib
import importlib.util
import os
from typing import Any, Dict, List

import jax
import jaxlib

from adapters.jax.precision import BY_NAME
from suite.worker.contract import Setup, Unavailable
from suite.worker.gpus import no_cuda, own_devices, uuids
from suite.worker.peaks import Yardstick, on_devices

PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
SERIAL = "--xla_cpu_multi_thread_eigen=false"  # no pool inside an operation: one thread for each device


def prepare(setup: Setup) -> List[Any]:
    """Return the devices that this process drives; Unavailable names what this machine lacks."""
    jax.config.update("jax_enable_x64", setup.precision == "float64")
    if setup.device == "cuda":
        return cuda(setup)
    os.environ["NPROC"] = str(setup.threads * setup.devices)
    if setup.threads == 1 and SERIAL not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " " + SERIAL).strip()
    jax.config.update("jax_platforms", "cpu")
    with contextlib.suppress(RuntimeError):  # an existing client keeps its devices: they are counted below
        jax.config.update("jax_num_cpu_devices", setup.devices)
    # On one device a step's call returns at once, as it does by default; several would overlap their exchanges (pmap).
    jax.config.update("jax_cpu_enable_async_dispatch", setup.devices == 1)
    found = jax.devices("cpu")
    if len(found) < setup.devices:
        raise Unavailable(
            "%d devices were asked for and JAX has %d on the CPU; jax_num_cpu_devices came too late, the client had "
            "been made" % (setup.devices, len(found))
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
        raise no_cuda("JAX %s reports %s" % (jax.__version__, " ".join(str(error).split())[:200]), remedy)
    return found if len(found) == setup.devices else [found[number] for number in own_devices(setup, len(found))]


def yardstick(setup: Setup, devices: List[Any]) -> Yardstick:
    """Measure in the type and the exactness of the networks' products."""
    arithmetic = BY_NAME[setup.precision]

    def put(array: Any, dtype: str, device: Any) -> Any:
        return jax.device_put(array.astype(jax.numpy.dtype(dtype)), device)

    def product(value: Any) -> Any:
        return jax.lax.dot(value, value, precision=arithmetic.exactness)

    name, copy, wait = "JAX " + jax.__version__, jax.jit(jax.numpy.invert), jax.block_until_ready
    return on_devices(name, arithmetic.product, devices, put, jax.jit(product), copy, wait)


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
            library = importlib.import_module(plugin + "._versions")
            cuda = library.cuda_runtime_get_version()  # 13000 is 13.0
            return {"cuda": "%d.%d" % (cuda // 1000, cuda % 1000 // 10), "cudnn": str(library.cudnn_get_version())}
    return {}
