"""The host under a process, as the system describes it, and the energy it has used; the system may hide any of it."""

import glob
import os
import platform
import subprocess
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from stagebench.suite.worker.guard import control_groups
from stagebench.suite.worker.messages import GpuSettings, Machine

CPUS, MEMORY = "/proc/cpuinfo", "/proc/meminfo"
OS = "/etc/os-release"
NETWORKS, INFINIBAND, PCI = "/sys/class/net", "/sys/class/infiniband", "/sys/bus/pci/devices"
# The fields of nvidia-smi, and its words for a switch.
FIELDS = ("index", "name", "uuid", "driver_version") + (
    "clocks.max.sm",  # MHz
    "power.limit",  # W
    "persistence_mode",
    "ecc.mode.current",
)
SWITCHED = {"Enabled": True, "Disabled": False}
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"


def asked(command: List[str]) -> str:
    """Return the output of a program; OSError or SubprocessError if it fails, or takes more than 10 s."""
    return subprocess.check_output(command, stderr=subprocess.DEVNULL, universal_newlines=True, timeout=10)


def machine(ask: Callable[[List[str]], str] = asked) -> Machine:
    total = memory().total
    named = field(OS, "PRETTY_NAME", "=")
    found, driver, set_to = gpus(ask)
    return Machine(
        cpu=field(CPUS, "model name") or platform.processor() or None,
        memory_bytes=int(total) if total < float("inf") else None,
        kernel=platform.release() or None,
        governor=text_of(GOVERNOR).strip() or None,
        os=named.strip('"') if named else None,
        gpus=found,
        gpu_driver=driver,
        sockets=len({line for line in text_of(CPUS).splitlines() if line.startswith("physical id")}) or None,
        gpu_links=gpu_links(),
        networks=networks(),
        cpu_quota=cpu_quota(),
        gpu_settings=set_to,
    )


def gpus(ask: Callable[[List[str]], str] = asked) -> Tuple[List[str], Optional[str], List[GpuSettings]]:
    """Return (NVIDIA devices as "GPU 0: MODEL (UUID: GPU-...)", the driver, the settings of each device).

    The lists are empty, and the driver is None, if nvidia-smi is missing or fails.
    """
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        listed = ask(command)
    except (OSError, subprocess.SubprocessError):
        return [], None, []
    rows = [[field.strip() for field in line.split(",")] for line in listed.splitlines()]
    rows = [row for row in rows if len(row) == len(FIELDS)]
    named = ["GPU %s: %s (UUID: %s)" % tuple(row[:3]) for row in rows]
    return named, rows[0][3] if rows else None, [_settings(*row[4:]) for row in rows]


def _settings(clock: str, limit: str, persistence: str, ecc: str) -> GpuSettings:
    """Parse the settings of one GPU; a value that is no number and neither on nor off, such as "[N/A]", is unknown."""
    megahertz = _number(clock)
    watts = _number(limit)
    return GpuSettings(
        None if megahertz is None else megahertz * 1e6, watts, SWITCHED.get(persistence), SWITCHED.get(ecc)
    )


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None


def gpu_links(devices: str = PCI) -> List[str]:
    """Return the fastest link that each graphics device and its slot have in common, by the devices' addresses."""
    found = []
    for path in sorted(glob.glob(f"{devices}/*")):
        if text_of(f"{path}/class").startswith("0x03"):
            speed = text_of(f"{path}/max_link_speed").strip()
            width = text_of(f"{path}/max_link_width").strip()
            if speed and width.isdigit():
                found.append(f"{speed} x{width}")
    return found


def networks(interfaces: str = NETWORKS, infiniband: str = INFINIBAND) -> List[str]:
    """Return the interfaces that are up, and InfiniBand's ports, each with its speed if it reports one."""
    found = []
    for path in sorted(glob.glob(f"{interfaces}/*")):
        if text_of(f"{path}/operstate").strip() == "up":
            name = os.path.basename(path)
            speed = text_of(f"{path}/speed").strip()
            found.append(f"{name}, {speed} Mbit/s" if speed.isdigit() else name)
    for path in sorted(glob.glob(f"{infiniband}/*/ports/*/rate")):
        found.append(f"{path.split('/')[-4]}, {text_of(path).strip()}")
    return found


def cores() -> int:
    """Return the number of cores that this process may keep busy: of its mask, and of its control groups' time."""
    most = len(os.sched_getaffinity(0))
    return max(1, int(min(most, cpu_quota() or most)))


def cpu_quota(root: str = "/") -> Optional[float]:
    """Return the cores' worth of time that this process's control groups (version 2, or 1) allow it; None: no limit."""
    quotas = [_quota(group) for group in folders_of_groups("cpu", root)]
    return min((quota for quota in quotas if quota is not None), default=None)


class HostMemory(NamedTuple):
    """Bytes of a host, or of the control group around this process if that has fewer; infinity if unknown."""

    total: float
    available: float  # without swapping


def memory(root: str = "/") -> HostMemory:
    total, available = (field(root + MEMORY.strip("/"), name) for name in ("MemTotal", "MemAvailable"))
    found = HostMemory(*(float(kib.split()[0]) * 1024 if kib else float("inf") for kib in (total, available)))
    for group in folders_of_groups("memory", root):
        most, used = (
            text_of(f"{group}/{name}").strip() or text_of(f"{group}/{old}").strip()
            for name, old in (("memory.max", "memory.limit_in_bytes"), ("memory.current", "memory.usage_in_bytes"))
        )
        if most.isdigit():
            # Files in the page cache make room.
            files = sum(int(field(f"{group}/memory.stat", name, " ") or 0) for name in ("active_file", "inactive_file"))
            free = max(0, int(most) - max(0, int(used or 0) - files))
            found = HostMemory(min(found.total, int(most)), min(found.available, free))
    return found


def folders_of_groups(controller: str, root: str = "/") -> List[str]:
    """Return the folders of this process's control groups (version 2, or 1), and of all groups around them.

    The least limit of them counts. A container may see its own group as the root.
    """
    found = []
    for number, controllers, path in control_groups(root):
        if number == "0" or controller in controllers.split(","):
            mounted = root + "sys/fs/cgroup" + ("" if number == "0" else f"/{controller}")
            parts = path.strip("/").split("/")
            found += [os.path.join(mounted, *parts[:depth]).rstrip("/") for depth in range(len(parts), -1, -1)]
    return found


def _quota(group: str) -> Optional[float]:
    """Return the cores' worth of time that one control group allows; None: no limit."""
    fields = text_of(f"{group}/cpu.max").split()
    if not fields:
        fields = [text_of(f"{group}/cpu.cfs_{name}").strip() for name in ("quota_us", "period_us")]
    if len(fields) != 2 or not all(field.isdigit() for field in fields):  # "max", or -1
        return None
    return int(fields[0]) / int(fields[1])


POWERCAP = "/sys/class/powercap"
DOMAINS = ("package", "dram")  # of RAPL; the others are parts of these, or contain them


class Energy(NamedTuple):
    """The energy counter of one RAPL domain, in microjoules: of a whole processor, with all of its users."""

    used: int
    range: int  # the counter begins again at 0 beyond it


def energy(folder: str = POWERCAP) -> Dict[str, Energy]:
    """Return RAPL's counters by their folder; none if the host has none, or only root may read them."""
    found = {}
    for zone in sorted(glob.glob(f"{folder}/intel-rapl:*")):  # AMD's bear that name too
        used, size = (text_of(zone + name).strip() for name in ("/energy_uj", "/max_energy_range_uj"))
        if text_of(f"{zone}/name").startswith(DOMAINS) and used.isdigit() and size.isdigit():
            found[zone] = Energy(int(used), int(size))
    return found


def joules(before: Dict[str, Energy], after: Dict[str, Energy]) -> Optional[float]:
    """Return the joules that all domains have used between two readings; None without counters.

    Each counter may have begun again once.
    """
    if not before or before.keys() != after.keys():
        return None
    grown = (now.used - before[zone].used for zone, now in after.items())
    ranges = (now.range for now in after.values())
    return sum(used if used >= 0 else used + size + 1 for used, size in zip(grown, ranges)) / 1e6


def field(path: str, name: str, separator: str = ":") -> Optional[str]:
    """Return the first value of that name in a file of lines "name: value"; None if there is none."""
    for line in text_of(path).splitlines():
        found, _, value = line.partition(separator)
        if found.strip() == name:
            return value.strip()
    return None


def text_of(path: str) -> str:
    """Return a file's text; "" if it cannot be read: a process may have ended, or be another person's."""
    return bytes_of(path).decode("utf-8", "replace")


def bytes_of(path: str) -> bytes:
    """Return a file's content; empty if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
