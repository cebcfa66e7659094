"""The GPUs of a rank among those that its process sees, and their UUIDs."""

import ctypes
import os
import uuid
from typing import Any, List, Optional

from stagebench.suite.worker.contract import Setup, Unavailable

# Variables by which a site or an engine shows a process only some of its host's GPUs.
CHOSEN = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


def own_devices(setup: Setup, visible: int) -> List[int]:
    """Return the numbers of a rank's own among the `visible` devices; Unavailable if there are too few for all ranks.

    A rank that sees as many as it drives was given its own (Slurm's --gpus-per-task): the controller compares UUIDs to
    see whether another rank was given the same. With `share_devices`, several ranks may drive a device.
    """
    first = setup.local_rank * setup.devices
    enough = first + setup.devices <= visible
    given = visible == setup.devices and any(name in os.environ for name in CHOSEN)
    if visible < setup.devices or not (enough or given or setup.share_devices):
        raise Unavailable(
            f"local rank {setup.local_rank} wants {setup.devices} GPU(s) of its own, after {first} of the ranks "
            f"before it, and sees {visible}; ask for fewer ranks per node or devices, for share_devices = true, "
            "or for device = 'cpu'"
        )
    return [(first + index) % visible for index in range(setup.devices)]


def no_cuda(why: str, remedy: str) -> Unavailable:
    """Return the error of a framework that finds no CUDA device.

    `why` is its reason ("PyTorch 2.9 is built without CUDA"), `remedy` the way to get one.
    """
    return Unavailable(f"no CUDA device: {why}; {remedy}, or ask for device = 'cpu'")


def driven(setup: Setup, driver: Optional[Any] = None) -> List[str]:
    """Return the UUIDs of a rank's own GPUs; none on a CPU, or if no CUDA driver reports them."""
    known = uuids(driver) if setup.device == "cuda" else []
    return [known[number] for number in own_devices(setup, len(known))] if known else []


def uuids(driver: Optional[Any] = None) -> List[str]:
    """Return the UUIDs of all visible CUDA devices, by their numbers, as nvidia-smi prints them; none without a driver.

    A slice of a GPU (MIG) has a UUID of its own, which only the second version of the driver's function returns.
    """
    try:
        cuda = driver or ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    device = ctypes.c_int()
    found = []
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    for number in range(count.value):
        if cuda.cuDeviceGet(ctypes.byref(device), number):
            return []
        whole, own = (_uuid(cuda, name, device) for name in ("cuDeviceGetUuid", "cuDeviceGetUuid_v2"))
        if not (whole or own):
            return []
        found.append(f"MIG-{own}" if whole and own and own != whole else f"GPU-{own or whole}")
    return found


def _uuid(cuda: Any, name: str, device: Any) -> Optional[uuid.UUID]:
    """Return the UUID that a function of the driver reports; None if this driver does not have it, or it fails."""
    raw = (ctypes.c_ubyte * 16)()
    function = getattr(cuda, name, None)
    if function is None or function(ctypes.byref(raw), device):
        return None
    return uuid.UUID(bytes=bytes(raw))
