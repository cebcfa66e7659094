"""MXNet as the controller sees it: what it can do and what its processes need."""

import ctypes
import os
from ctypes.util import find_library
from pathlib import Path

from stagebench.suite.contracts.adapter import INFERENCE, Adapter, Backend, Capabilities, Format, Strategy
from stagebench.suite.contracts.case import FLOAT32, Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.kernels import KERNEL_KNOBS, keep_memory, variables
from stagebench.suite.contracts.knobs import Knob, Need

LIBRARIES = {"gomp": "libgomp1", "quadmath": "libquadmath0"}  # what the linker calls them: Debian's package

STRATEGIES = (
    Strategy(
        "single",
        "stagebench.adapters.mxnet.base:MXNetTrainer",
        "One process, one device, no exchange.",
        distributed=False,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "kvstore_local",
        "stagebench.adapters.mxnet.strategies.kvstore:KVStoreLocal",
        "Several devices of one process; the key-value store 'local' sums gradients on the host.",
        distributed=False,
        several_devices=True,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "kvstore_device",
        "stagebench.adapters.mxnet.strategies.kvstore:KVStoreDevice",
        "Several devices of one process; the key-value store 'device' sums gradients on the devices.",
        distributed=False,
        several_devices=True,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "dist_sync",
        "stagebench.adapters.mxnet.strategies.kvstore:DistSync",
        "Parameter servers sum the workers' gradients; every worker updates.",
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "dist_device_sync",
        "stagebench.adapters.mxnet.strategies.kvstore:DistSync",
        "As dist_sync, with several devices a worker: it sums their gradients on its devices, the servers the sums.",
        several_devices=True,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "dist_async",
        "stagebench.adapters.mxnet.strategies.dist_async:DistAsync",
        "Parameter servers update as each worker's gradients come, and send the weights back: one stage.",
        synchronous=False,
        separable=("io", "h2d", "forward", "backward", "communication"),
        keeps_rate="the servers update, by optimisers of their own, and take no rate from a worker",
    ),
    Strategy(
        INFERENCE,
        "stagebench.adapters.mxnet.inference:MXNetPredictor",
        "No training: answers of the hybridised network; tuned: static memory and shapes, batch normalisations folded, "
        "layers fused by MXNet's oneDNN backend.",
        infers=True,
        distributed=False,
        refuses={("lrn", "native"): "inference uses MXNet's own LRN already; leave the knob lrn at 'composed'"},
    ),
)

BY_SERVERS = ("dist_sync", "dist_device_sync", "dist_async")
COMPRESSING = ("kvstore_device", *BY_SERVERS)

KNOBS = {
    **KERNEL_KNOBS,
    "lrn": Knob(
        ("composed", "native"),
        "composed",
        "Local response normalisation from elementary operators, or MXNet's own, whose gradient is wrong with oneDNN.",
        needs=(Need("precision", ("float32",), "MXNet's own LRN computes in no other"),),
    ),
    "compression": Knob(
        ("none", "2bit"),
        "none",
        "Gradients as they are exchanged: whole, or 2 bits a number, the rest kept for the next step; servers send "
        "whole sums back.",
        strategies=COMPRESSING,
        relaxing=("2bit",),
        needs=(Need("precision", ("float32",), "MXNet compresses no other gradients"),),
    ),
    "threshold": Knob(
        (float, int),
        0.5,
        "What 2bit sends of a number: the threshold, 0 or minus the threshold; of gradients summed over a device's "
        "samples.",
        strategies=COMPRESSING,
        above=0,
        needs=(Need("compression", ("2bit",), "it changes nothing without"),),
    ),
    "servers": Knob(("auto", int), "auto", "Parameter servers; auto: one a node.", strategies=BY_SERVERS, least=1),
}

FORMATS = (
    Format(
        "recordio",
        "RecordIO files of whole images, as im2rec packs them, read by ImageRecordIter.",
        scaling="ImageRecordIter scales by OpenCV's INTER_AREA, which averages over boxes instead of triangles",
    ),
)

# MXNet 1.9.1's server never sets the flag by which it keeps weights in float32 next to those of another precision; it
# finds what was left in that memory, and where that is not 0 its float64 is rounded. With these glibc hands out zeros
# (not from the per-thread cache either). They cost time, and only float64, where identity is proven, has them.
ZEROED_MEMORY = {"MALLOC_PERTURB_": "255", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
# TF32 rounds what is multiplied to 11 bits: it is not the float32 that the record names. MXNet has no switch for it:
# even where MXNET_CUDA_ALLOW_TENSOR_CORE is 0 it asks for cuDNN's default, which allows it from the A100 on. NVIDIA's
# libraries read this variable.
FULL_FLOAT32 = {"NVIDIA_TF32_OVERRIDE": "0"}


BACKENDS = (
    Backend(
        "kvstore",
        "MXNet's dist_sync store: push and pull over parameter servers, and its broadcast.",
        "stagebench.adapters.mxnet.comm:StoreCommunicator",
        "dist_sync",
        ("all-reduce", "broadcast"),
        (FLOAT32, "float16"),
    ),
)


class MXNet(Adapter):
    """Apache MXNet with Gluon on CPUs and CUDA devices, over its own key-value stores."""

    contract = 4
    name = "mxnet"
    title = "MXNet"
    package = "stagebench.adapters.mxnet"
    requires = ("mxnet", "PIL")  # Pillow decodes what is packed as RecordIO
    arithmetic_variables = ("MXNET_",)
    # src/storage: cpu_device_storage.h, pooled_storage_manager.h
    out_of_memory = ("Failed to allocate CPU Memory", "Memory allocation failed")
    environment = "mxnet"
    backends = BACKENDS
    requirements = "stagebench/adapters/environments/mxnet.txt"
    remedy = "stagebench env make mxnet"

    capabilities = Capabilities(
        strategies=STRATEGIES,
        devices=("cpu", "cuda"),
        precisions=("float32", "float64"),
        knobs=KNOBS,
        optimisers=("sgd", "adam", "adamw"),
        formats=FORMATS,
    )

    def missing(self, interpreter: Path) -> str | None:
        """GCC's run-time libraries, which the wheel leaves to the system; the driver, which the one for GPUs loads."""
        missing = [package for name, package in LIBRARIES.items() if find_library(name) is None]
        if missing:
            return f"MXNet loads libraries that this machine lacks; install them: apt-get install {' '.join(missing)}"
        if cuda_of_wheels(interpreter) and not has_driver():
            return (
                "MXNet's wheel for GPUs loads libcuda.so.1 of NVIDIA's driver, which this machine lacks; install the "
                f"driver, or take the one for CPUs: {self.remedy}"
            )
        return None

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        """Variables: a distributed store's members, GPUs' libraries and full float32, kernels, a tuned CPU's malloc."""
        kernels = variables(case, "MXNET_CUDNN_AUTOTUNE_DEFAULT", "MXNET_MKLDNN_ENABLED", "MXNET_ENFORCE_DETERMINISM")
        found = {**keep_memory(case, other_threads=True), **kernels, **cuda_of_wheels(interpreter)}
        if case.placement.device == "cuda" and case.precision == "float32":
            found.update(FULL_FLOAT32)
        if case.strategy in BY_SERVERS:
            found.update(DMLC_NUM_WORKER=str(case.placement.ranks), DMLC_NUM_SERVER=str(servers(case)))
            if case.placement.nodes > 1:
                found["STAGEBENCH_MXNET_NODES"] = str(case.placement.nodes)
            if case.precision == "float64":
                found.update(ZEROED_MEMORY)
        return found

    def sidecars(self, case: Configuration) -> tuple[tuple[str, ...], ...]:
        """The scheduler, by which all find each other, and the servers."""
        if case.strategy not in BY_SERVERS:
            return ()
        roles = ("scheduler", *("server",) * servers(case))
        return tuple(("adapters/mxnet/server.py", role) for role in roles)


def cuda_of_wheels(interpreter: Path) -> dict[str, str]:
    """Return the loader's path to NVIDIA's wheels, where MXNet for GPUs does not look for their libraries."""
    sites = list(interpreter.parent.parent.glob("lib/python3*/site-packages"))
    if not any(any(site.glob("mxnet_cu*.dist-info")) for site in sites):
        return {}
    folders = sorted(str(folder) for site in sites for folder in site.glob("nvidia/*/lib"))
    return {"LD_LIBRARY_PATH": ":".join(filter(None, [*folders, os.environ.get("LD_LIBRARY_PATH", "")]))}


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def servers(case: Configuration) -> int:
    asked = case.knobs["servers"]
    return case.placement.nodes if asked == "auto" else int(asked)


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [MXNet()]
