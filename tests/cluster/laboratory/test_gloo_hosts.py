"""gloo over two hosts that nothing but their ranks' variables leads together, as under an mpiexec."""

import os
import subprocess
from pathlib import Path

import pytest

from cluster.lab.state import entering
from suite.worker.rendezvous import free_port

CHECKOUT = Path(__file__).parents[3]
RANK = """
import os, sys
from adapters.pytorch.comm import ProcessGroup
from suite.worker.contract import SGD, Setup
rank, rule = int(sys.argv[1]), SGD(0.0, 0.0, 0.0)
group = ProcessGroup(Setup(rank, 2, 0, "ddp", "cpu", 1, 1, "float32", "default", {}, rule, 1, 0))
print(group.maximum(rank + 0.5), os.environ["GLOO_SOCKET_IFNAME"])
group.close()
"""


@pytest.mark.parametrize("own", ["its name", "127.0.1.1"])
def test_gloo_takes_the_wire_also_where_the_first_host_knows_itself_as_127_0_1_1(laboratory, pytorch, own):
    """What Debian's installer writes: the first host's name means the wire to the others and 127.0.1.1 to itself."""
    first = laboratory.layout.address(laboratory.layout.hosts[0])
    port, running = free_port(), []
    for rank, host in enumerate(laboratory.layout.hosts):
        master = "127.0.1.1" if rank == 0 and own == "127.0.1.1" else first
        place = {**os.environ, "PYTHONPATH": str(CHECKOUT), "MASTER_ADDR": master, "MASTER_PORT": str(port)}
        place.pop("GLOO_SOCKET_IFNAME", None)
        tokens = entering(laboratory, host, [str(pytorch), "-W", "ignore", "-c", RANK, str(rank)])
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running.append(subprocess.Popen(tokens, env=place, **pipes))
    try:
        told = [process.communicate(timeout=90) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [out for out, _ in told] == ["1.5 eth0\n"] * 2, told
