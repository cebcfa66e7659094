"""Makes a laboratory of a layout, looks at it, and takes it down again.

Each host is a network namespace, in which `eth0` leads to a bridge in a namespace of its own, so that the
machine's own network is never touched; an UTS namespace, for its name; and an IPC namespace, without which MPI
libraries find shared memory between "hosts" and never touch the wire.
"""

import os
import platform
import re
import shlex
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from stagebench.cluster.lab.network import (
    CONGESTION,
    UNSHAPED,
    Layout,
    bits,
    connect,
    discipline,
    run,
    shape,
    wire,
    works,
)
from stagebench.cluster.lab.state import State, entering, folder
from stagebench.cluster.logins import LIKE_SSH
from stagebench.cluster.slurm import private
from stagebench.cluster.slurm.private import Node
from stagebench.suite.errors import RequestError, Unavailable

NAMESPACES = Path("/run/netns")  # where `ip netns` keeps them
FILES = Path("/etc/netns")  # of a namespace: laid over /etc by `ip netns exec`
# Used as `agent [OPTIONS] HOST COMMAND ...`: the words become one line for a shell, in a home, with the
# variables of a login and no others. What a launcher forgets to hand on is as absent as on a real cluster.
AGENT = """\
{like_ssh}[ -e {folder}/"$host.uts" ] || {{ echo "agent: $host is no host of the laboratory {name}" >&2; exit 255; }}
cd ~ 2>/dev/null || cd /
exec ip netns exec "$host" nsenter --uts={folder}/"$host.uts" --ipc={folder}/"$host.ipc" -- \\
    env -i HOME="$HOME" USER=root LOGNAME=root SHELL=/bin/sh PATH={path} /bin/sh -c "$*"
"""
LOGIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # a login's

POLITE, FORCED = 3.0, 5.0  # seconds after SIGTERM, after SIGKILL
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
    return next(_problems(), None)


def _problems() -> Iterator[str]:
    if platform.system() != "Linux":
        yield f"a laboratory is made of Linux namespaces, and this is {platform.system()}; take a Linux machine"
    held = int(re.findall(r"CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text())[0], 16)
    absent = [name for bit, name in CAPABILITIES.items() if not held >> bit & 1]
    if os.geteuid() != 0 or absent:
        what = " and ".join(absent) or "the user root"
        yield f"a laboratory needs {what}; run it as root, in a container with --privileged"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        packages = " ".join(sorted({PROGRAMS[name] for name in absent}))
        yield f"a laboratory needs the program {', '.join(absent)}; `apt-get install {packages}` brings it"
    # The kernel's features are tried in a new namespace, which is removed.
    probe = f"stagebench-probe-{uuid4().hex[:12]}"  # another may be looking, too
    if not works(f"ip netns add {probe}"):
        yield "this kernel, or the container around us, refuses network namespaces; run the container with --privileged"
        return
    attempts = {
        "veth": f"ip -n {probe} link add one type veth peer name two",
        "bridge": f"ip -n {probe} link add switch type bridge",
        "sch_tbf": f"tc -n {probe} qdisc add dev one root {discipline(1e9, paces=True)}",
        f"tcp_{CONGESTION}": f"ip -n {probe} route add blackhole 192.0.2.0/24 congctl {CONGESTION}",
    }
    try:
        for module, command in attempts.items():
            if not works(command):
                yield f"this kernel has no {module}: try `modprobe {module}`{KERNEL}"
        if not works("unshare --uts --ipc true"):
            yield "this kernel, or the container around us, refuses UTS and IPC namespaces; run it with --privileged"
    finally:
        works(f"ip netns del {probe}")


def up(layout: Layout, rate: str = UNSHAPED, slurm: int = 0) -> State:
    """Build it, whole or not at all; `slurm` are the cores of a node of the Slurm over it, 0: there is none.

    RequestError if it exists already, Unavailable if this machine cannot build it.
    """
    bits(rate)
    if folder(layout.name).exists():
        raise taken(layout.name)
    foreign = [name for name in layout.namespaces if (NAMESPACES / name).exists() or (FILES / name).exists()]
    if foreign:
        raise RequestError(
            f"the namespace {foreign[0]} exists and belongs to no laboratory in {folder(layout.name).parent}; "
            f"take another --name, or, if it is yours, end it by `ip netns del {foreign[0]}` and move its files, "
            f"{FILES / foreign[0]}, elsewhere"
        )
    problem = missing() or (private.missing() if slurm else None)
    if problem:
        raise Unavailable(problem)
    state = State(layout, rate)
    try:
        state.folder.mkdir(parents=True)
    except FileExistsError:
        raise taken(layout.name) from None
    try:
        _build(state)
        if slurm:
            nodes = [Node(host, layout.address(host), tuple(entering(state, host, []))) for host in layout.hosts]
            state.slurm.start(nodes, slurm)
    except BaseException:
        down(state)
        raise
    return state


def taken(name: str) -> RequestError:
    """Return the error that a laboratory exists already."""
    return RequestError(
        f"there is a laboratory {name!r} in {folder(name)}; end it with `stagebench lab down --name {name}`, "
        "or take another --name"
    )


def down(state: State) -> None:
    """End what runs inside, then remove every trace; what does not exist (any more) is passed over."""
    layout = state.layout
    state.slurm.stop()
    for namespace in layout.namespaces:
        end(namespace)
    for host in layout.hosts:
        for mount in state.kept(host).values():
            works(f"umount {shlex.quote(str(mount))}")
    for namespace in layout.namespaces:
        works(f"ip netns del {namespace}")
        shutil.rmtree(FILES / namespace, ignore_errors=True)
    shutil.rmtree(state.folder)


def _build(state: State) -> None:
    state.save()
    layout = state.layout
    run(f"ip netns add {layout.switch}")
    run(f"ip -n {layout.switch} link add bridge type bridge")
    run(f"ip -n {layout.switch} link set bridge up")
    table = "".join(f"{layout.address(host)} {host}\n" for host in layout.hosts)
    for host in layout.hosts:
        connect(layout, host)
        kept = state.kept(host)  # the UTS namespace, with the host's name in it, and the IPC namespace
        for path in kept.values():
            path.touch()
        run(shlex.join(["unshare", *(f"--{kind}={path}" for kind, path in kept.items()), "hostname", host]))
        (FILES / host).mkdir(parents=True)
        (FILES / host / "hosts").write_text(f"127.0.0.1 localhost\n{table}")
    if state.rate != UNSHAPED:
        shape(layout, state.rate)
    place, name = shlex.quote(str(state.folder)), layout.name
    state.agent.write_text(AGENT.format(like_ssh=LIKE_SSH, folder=place, name=name, path=LOGIN_PATH))
    state.agent.chmod(0o755)


def processes(namespace: str) -> list[psutil.Process]:
    """Return the processes in a network namespace; none if it does not exist."""
    command = f"ip netns pids {namespace}"
    if not works(command):
        return []
    running = []
    for pid in map(int, run(command).split()):
        with suppress(psutil.NoSuchProcess):
            running.append(psutil.Process(pid))
    return running


def end(namespace: str, patience: float = POLITE) -> None:
    """End the processes in a namespace, by SIGTERM, then SIGKILL; RequestError if this very process is one of them."""
    running = processes(namespace)
    if os.getpid() in [process.pid for process in running]:
        raise RequestError(f"this command runs in {namespace} itself; give it outside of the laboratory")
    _signal(running, signal.SIGTERM)
    _, staying = psutil.wait_procs(running, patience)
    _signal({*staying, *processes(namespace)}, signal.SIGKILL)
    psutil.wait_procs(staying, FORCED)


def _signal(running: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def look(state: State) -> list[dict[str, Any]]:
    """Return a row for each host: its processes, its link and the bytes that crossed it."""
    rows = []
    for host in state.layout.hosts:
        link, running = wire(host), []
        for process in processes(host):
            with suppress(psutil.NoSuchProcess):
                running.append(f"{process.pid} {process.name()}")
        rows.append(
            {
                "host": host,
                "address": state.layout.address(host),
                "link": "up" if link.up else "down",
                "rate": state.rate,
                "received": link.received,
                "sent": link.sent,
                "processes": running,
            }
        )
    return rows
