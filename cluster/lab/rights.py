"""The requirements of a laboratory: rights, programs, and features of the kernel."""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from cluster.lab.links import CONGESTION, discipline, works

# program -> Debian's package
PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
}
CAPABILITIES = {12: "CAP_NET_ADMIN", 21: "CAP_SYS_ADMIN"}  # linux/capability.h
KERNEL = "; a kernel that has it is Debian's linux-image-amd64 (not the -cloud one)"


def missing() -> str | None:
    """Return why no laboratory can be built here, with the remedy; None if one can."""
    return next((reason for look in (_system, _rights, _programs, _kernel) for reason in look()), None)


def _system() -> Iterator[str]:
    if platform.system() != "Linux":
        yield f"a laboratory is made of Linux namespaces, and this is {platform.system()}; take a Linux machine"


def _rights() -> Iterator[str]:
    held = int(re.findall(r"CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text())[0], 16)
    absent = [name for bit, name in CAPABILITIES.items() if not held >> bit & 1]
    if os.geteuid() != 0 or absent:
        what = " and ".join(absent) or "the user root"
        yield f"a laboratory needs {what}; run it as root, in a container with --privileged"


def _programs() -> Iterator[str]:
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        packages = " ".join(sorted({PROGRAMS[name] for name in absent}))
        yield f"a laboratory needs the program {', '.join(absent)}; `apt-get install {packages}` brings it"


def _kernel() -> Iterator[str]:
    """Try the features in a new namespace, and remove it."""
    probe = f"stagebench-probe-{uuid4().hex[:12]}"  # another may be looking, too
    if not works("ip", "netns", "add", probe):
        yield "this kernel, or the container around us, refuses network namespaces; run the container with --privileged"
        return
    shape = ("tc", "-n", probe, "qdisc", "add", "dev", "one", "root", *discipline(1e9, paces=True))
    attempts = {
        "veth": ("ip", "-n", probe, "link", "add", "one", "type", "veth", "peer", "name", "two"),
        "bridge": ("ip", "-n", probe, "link", "add", "switch", "type", "bridge"),
        "sch_tbf": shape,
        f"tcp_{CONGESTION}": ("ip", "-n", probe, "route", "add", "blackhole", "192.0.2.0/24", "congctl", CONGESTION),
    }
    try:
        for module, tokens in attempts.items():
            if not works(*tokens):
                yield f"this kernel has no {module}: try `modprobe {module}`{KERNEL}"
        if not works("unshare", "--uts", "--ipc", "true"):
            yield "this kernel, or the container around us, refuses UTS and IPC namespaces; run it with --privileged"
    finally:
        works("ip", "netns", "del", probe)
