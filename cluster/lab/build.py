"""Makes a laboratory of a layout, and takes it down again.

Each host is a network namespace, in which `eth0` leads to a bridge in a namespace of its own, so that the
machine's own network is never touched; an UTS namespace, for its name; and an IPC namespace, without which MPI
libraries find shared memory between "hosts" and never touch the wire.
"""

import shutil
from pathlib import Path

from cluster.lab.layout import UNSHAPED, Layout
from cluster.lab.links import bits, connect, run, shape, works
from cluster.lab.look import end
from cluster.lab.rights import missing
from cluster.lab.state import State, entering, folder, write_agent
from cluster.slurm import private
from cluster.slurm.private import Node
from suite.errors import RequestError, Unavailable

NAMESPACES = Path("/run/netns")  # where `ip netns` keeps them
FILES = Path("/etc/netns")  # of a namespace: laid over /etc by `ip netns exec`


def up(layout: Layout, rate: str = UNSHAPED, slurm: int = 0) -> State:
    """Build it, whole or not at all; `slurm` are the cores of a node of the Slurm over it, 0: there is none.

    RequestError if it exists already, Unavailable if this machine cannot build it.
    """
    bits(rate)
    check_free(layout)
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


def check_free(layout: Layout) -> None:
    """Raise RequestError if a laboratory of this name exists, or a namespace that belongs to no laboratory."""
    if folder(layout.name).exists():
        raise taken(layout.name)
    foreign = [name for name in layout.namespaces if (NAMESPACES / name).exists() or (FILES / name).exists()]
    if foreign:
        raise RequestError(
            f"the namespace {foreign[0]} exists and belongs to no laboratory in {folder(layout.name).parent}; "
            f"take another --name, or remove it: `ip netns del {foreign[0]}; rm -r {FILES / foreign[0]}`"
        )


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
            works("umount", str(mount))
    for namespace in layout.namespaces:
        works("ip", "netns", "del", namespace)
        shutil.rmtree(FILES / namespace, ignore_errors=True)
    shutil.rmtree(state.folder)


def _build(state: State) -> None:
    state.save()
    layout = state.layout
    run("ip", "netns", "add", layout.switch)
    run("ip", "-n", layout.switch, "link", "add", "bridge", "type", "bridge")
    run("ip", "-n", layout.switch, "link", "set", "bridge", "up")
    table = "".join(f"{layout.address(host)} {host}\n" for host in layout.hosts)
    for host in layout.hosts:
        connect(layout, host)
        _name(state, host)
        (FILES / host).mkdir(parents=True)
        (FILES / host / "hosts").write_text("127.0.0.1 localhost\n" + table)
    if state.rate != UNSHAPED:
        shape(layout, state.rate)
    write_agent(state)


def _name(state: State, host: str) -> None:
    """UTS and IPC namespaces, kept by mounts; the host's name in the first."""
    kept = state.kept(host)
    for path in kept.values():
        path.touch()
    run("unshare", *(f"--{kind}={path}" for kind, path in kept.items()), "hostname", host)
