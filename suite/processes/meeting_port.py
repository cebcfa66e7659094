"""The port at which the ranks of a launch will meet."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from suite.worker.rendezvous import free_port


@contextmanager
def meeting_port() -> Iterator[int]:
    """A free TCP port of this host that no other launch is given meanwhile.

    Ranks listen there once they have imported their framework; for seconds nothing else shows that it is taken. Of two
    launches at one port the later one fails, or, worse, MXNet's servers take the other's workers for their own. The
    promise is the name of a socket, which goes with this process, however it ends.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as promise:
        while True:
            port = free_port()
            try:
                promise.bind(f"\0stagebench-port-{port}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise
            yield port
            return
