"""Where MXNet's scheduler, servers and workers meet: the launcher's variables in ps-lite's words.

Called before a process becomes one of them: a worker creates its key-value store then, a
scheduler or server imports mxnet. Standard library only.

Oldest Python: 3.6.
"""

import os
import socket

COUNTS = ("DMLC_NUM_WORKER", "DMLC_NUM_SERVER")  # set by the adapter's plugin
NODES = "STAGEBENCH_MXNET_NODES"  # too, where there are several


def take_part(role: str) -> str:
    """Set what ps-lite reads for "worker", "server" or "scheduler"; returns this host's own address.

    ValueError names a variable that the launcher or the plugin should have set, or an
    address that other hosts cannot reach.
    """
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") + COUNTS if not os.environ.get(name)]
    if missing:
        raise ValueError(
            "%s is not set, and MXNet's workers and servers meet by it; a launcher sets it, by hand: "
            "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=1" % missing[0]
        )
    scheduler = numeric(os.environ["MASTER_ADDR"], int(os.environ.get(NODES, "1")))
    own = own_address(scheduler)
    os.environ.update(
        DMLC_ROLE=role,
        DMLC_PS_ROOT_URI=scheduler,
        DMLC_PS_ROOT_PORT=os.environ["MASTER_PORT"],
        # Left to itself ps-lite takes the first interface that is not the loopback, and there may be none.
        DMLC_NODE_HOST=own,
    )
    return own


def numeric(name: str, nodes: int) -> str:
    """The scheduler's address in numbers: ps-lite binds to it, and all others must find the same."""
    address = socket.gethostbyname(name)
    if nodes > 1 and address.startswith("127."):
        raise ValueError(
            "MASTER_ADDR is %s, on this host %s, which the other hosts cannot reach (Debian's /etc/hosts gives a "
            "host's own name 127.0.1.1); name the first of the plan's `hosts` by its address in numbers"
            % (name, address)
        )
    return address


def own_address(peer: str) -> str:
    """The address by which `peer` can reach this host; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        address: str = probe.getsockname()[0]
        return address
