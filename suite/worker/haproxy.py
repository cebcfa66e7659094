"""HAProxy in front of the model servers of several hosts: https://www.haproxy.org/.

It hands each *query* to the host with the fewest under way, those with equally few in turn. By connections it would be
no balance: the generator takes the one that was used last, so at low rates one host would have nearly all queries.
"""

import os
import shutil
from typing import List, Optional

NO_HAPROXY = (
    "model servers on several hosts are behind one address by HAProxy, which the first host does not have; "
    "apt-get install haproxy"
)
SYSTEM = "/usr/sbin"  # not on every PATH
# Its time-outs are above the generator's. One thread passes on tens of thousands of queries a second.
CONFIGURATION = """\
global
    fd-hard-limit 40000
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 600s
listen model-servers
    bind {address}
    balance leastconn
"""


def haproxy() -> Optional[str]:
    """Return the program's path; None if this host has none."""
    return shutil.which("haproxy", path=os.pathsep.join((os.environ.get("PATH", os.defpath), SYSTEM)))


def configuration(address: str, servers: List[str]) -> str:
    """Return its configuration at an address, in front of servers, each "HOST:PORT"."""
    lines = [f"    server rank-{rank} {server}\n" for rank, server in enumerate(servers)]
    return CONFIGURATION.format(address=address) + "".join(lines)
