"""Where MXNet's scheduler, servers and workers meet: the launcher's variables in ps-lite's words.

Called before a process becomes one of them: a worker creates its key-value store then, a
scheduler or server imports mxnet. Standard library only.

Oldest Python: 3.6.
"""

import os
import socket

COUNTS = ("DMLC_NUM_WORKER", "DMLC_NUM_SERVER")  # set by the adapter's plugin


def take_part(role: str) -> str:
    """Set what ps-lite reads for "worker", "server" or "scheduler"; returns this host's own address.

    ValueError names a variable that the launcher or the plugin should have set.
    """
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") + COUNTS if not os.environ.get(name)]
    if missing:
        raise ValueError(
            "%s is not set, and MXNet's workers and servers meet by it; a launcher sets it, by hand: "
            "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=1" % missing[0]
        )
    # ps-lite binds to this address, and for that it wants numbers, not a name.
    scheduler = socket.gethostbyname(os.environ["MASTER_ADDR"])
    own = own_address(scheduler)
    os.environ.update(
        DMLC_ROLE=role,
        DMLC_PS_ROOT_URI=scheduler,
        DMLC_PS_ROOT_PORT=os.environ["MASTER_PORT"],
        # Left to itself ps-lite takes the first interface that is not the loopback, and there may be none.
        DMLC_NODE_HOST=own,
    )
    return own


def own_address(peer: str) -> str:
    """The address by which `peer` can reach this host; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        address: str = probe.getsockname()[0]
        return address
