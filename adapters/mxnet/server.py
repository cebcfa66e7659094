"""`server.py scheduler` or `server.py server`: MXNet's processes next to the workers, and how all of them meet.

Importing mxnet in such a role serves until the workers are done, and then ends the process. ps-lite reads the variables
by which scheduler, servers and workers meet; they are made of the launcher's. `take_part` must run before a worker
creates its key-value store, and before a scheduler or server imports mxnet, so this file does not import it.

Standard library only.
"""

import os
import socket
import sys

COUNTS = ("DMLC_NUM_WORKER", "DMLC_NUM_SERVER")  # set by the adapter's plugin
NODES = "STAGEBENCH_MXNET_NODES"  # also set by the plugin, for several nodes


def take_part(role: str) -> str:
    """Set ps-lite's variables for "worker", "server" or "scheduler"; return this host's own address.

    ValueError names a variable that the launcher or the plugin should have set, or an
    address that other hosts cannot reach.
    """
    from stagebench.suite.worker.rendezvous import (  # a server's `main` sets where imports start
        address_towards,
        meeting_place,
    )

    host, port = meeting_place("MXNet's workers and servers")
    for name in COUNTS:
        if not os.environ.get(name):
            raise ValueError(f"{name} is not set; the adapter's plugin sets it")
    scheduler = numeric(host, int(os.environ.get(NODES, "1")))
    if scheduler.startswith("127."):
        scheduler = own = loopback_of(port)
    else:
        own = address_towards(scheduler)
    os.environ.update(
        DMLC_ROLE=role,
        DMLC_PS_ROOT_URI=scheduler,
        DMLC_PS_ROOT_PORT=str(port),
        # By default ps-lite takes the first interface that is not the loopback, and there may be none.
        DMLC_NODE_HOST=own,
    )
    return own


def loopback_of(port: int) -> str:
    """Return a loopback address that only the members who meet at this port use.

    A member calls a lost member's port ten times a second, by a name that every training has ("ps1" is the
    scheduler's). If a member of another training is given that port by then, it takes the caller for its own scheduler
    or server, rejects the real one, and waits forever.
    """
    return "127.%d.%d.1" % divmod(port, 256)


def numeric(name: str, nodes: int) -> str:
    """Return the scheduler's numeric address: ps-lite binds to it, and all members need the same address."""
    address = socket.gethostbyname(name)
    if nodes > 1 and address.startswith("127."):
        raise ValueError(
            f"MASTER_ADDR is {name}, on this host {address}, which the other hosts cannot reach (Debian's "
            "/etc/hosts gives a host's own name 127.0.1.1); name the first of the plan's `hosts` by its address "
            "in numbers"
        )
    return address


def main(role: str) -> None:
    """Serve; SystemExit when all is done."""
    # Run as a file of the bundle: imports start from the bundle, not from this folder.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    take_part(role)
    import mxnet  # noqa: F401 - this is what serves


if __name__ == "__main__":
    main(sys.argv[1])
