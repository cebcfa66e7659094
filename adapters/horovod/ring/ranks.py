"""Horovod's ranks: how they find each other over gloo or MPI, and with which of its settings they exchange.

On GPUs these two only connect the ranks; NCCL carries the gradients.

Horovod reads its settings from the environment when it starts, and so they are written there.
Over MPI the ranks know each other already; over gloo rank 0 keeps a store in which everybody
leaves an address (what horovodrun does from outside).
"""

import os
import socket
import threading
from typing import Any, Dict, List, Tuple

from horovod import __version__
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from suite.worker.contract import Group, Joined, Setup
from suite.worker.meeting import Meeting
from suite.worker.mpi_library import loaded
from suite.worker.rendezvous import interface_of, meeting_place
from suite.worker.tuning import chosen

MPI = "libmpi.so.40"  # Open MPI's, of its versions 4 and 5
PATIENCE = "300"  # seconds that gloo waits for another rank; its 30 pass while a big network is built


class Ring(Group):
    """Horovod as one rank sees it, with a meeting of the ranks for what it does not do."""

    def __init__(self, hvd: Any, setup: Setup) -> None:
        """Join; `hvd` is Horovod's module for the engine. Waits for all ranks."""
        self._hvd = hvd
        place = meeting_place("Horovod's ranks") if setup.world > 1 else ("127.0.0.1", 0)
        self._meeting = Meeting(setup.rank, setup.world, place)
        self._controller, self._knobs = controller(setup), setup.knobs
        os.environ.update(settings(self._knobs, self._controller))
        if self._controller == "gloo":
            self._start_over_gloo(setup)
            self.transport = "gloo"
        else:
            hvd.init()
            self.transport = "mpi: " + loaded(MPI)
        if setup.device == "cuda":
            self.transport = "nccl"
        self.rank, self.world = hvd.rank(), hvd.size()

    def joined(self, versions: Dict[str, str]) -> Joined:
        """What the engine made of this process; `versions` of the framework."""
        return Joined(self.rank, self.world, self.transport, dict(versions, horovod=__version__))

    def maximum(self, value: float) -> float:
        """The largest value over all ranks, over sockets: Horovod's own thread is in the middle of its work."""
        return self._meeting.maximum(value)

    def close(self) -> None:
        """Leave together: nobody's connections close while another one still exchanges."""
        self._meeting.leave()
        self._hvd.shutdown()

    def notes(self) -> Dict[str, Any]:
        return {"horovod": dict(self._knobs, controller=self._controller)}

    def _start_over_gloo(self, setup: Setup) -> None:
        if setup.world > 1:
            refuse_nameless_host()
        own = socket.gethostbyname(self._meeting.host)
        store = Store(own) if setup.rank == 0 and setup.world > 1 else None
        hosts = self._meeting.exchange(socket.gethostname())
        (place, *_) = self._meeting.exchange("%s:%d" % store.address if store else "")
        os.environ.update(numbers(setup.rank, hosts))
        interface = interface_of(own)
        if interface:
            os.environ.setdefault("HOROVOD_GLOO_IFACE", interface)
        if place:
            address, _, port = place.rpartition(":")
            os.environ.update(HOROVOD_GLOO_RENDEZVOUS_ADDR=address, HOROVOD_GLOO_RENDEZVOUS_PORT=port)
        self._hvd.init()
        self._meeting.maximum(0.0)
        if store is not None:
            store.close()


def refuse_nameless_host() -> None:
    """ValueError where this host's own name has no address: Horovod's gloo looks it up, and crashes without one.

    Horovod 0.28.1 hands HOROVOD_GLOO_IFACE to its global context, but not to those of its process sets
    (gloo_context.cc, InitializeForProcessSet). Containers may have a name that nobody knows.
    """
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise ValueError(
            "this host's own name, %r, has no address (%s), and Horovod looks it up: give it one in "
            '/etc/hosts, or join by MPI (knobs.controller = "mpi", launcher mpiexec)' % (name, error.strerror)
        )


class Store:
    """Where ranks leave their gloo addresses while they join: Horovod's own, at a free port of one address."""

    def __init__(self, host: str) -> None:
        self._server = RendezvousHTTPServer((host, 0), RendezvousHandler, 0)
        self.address: Tuple[str, int] = self._server.server_address[:2]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.daemon = True
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def controller(setup: Setup) -> str:
    """Which of "gloo" and "mpi"; where the plan leaves it open, MPI for ranks that an MPI's mpiexec has started."""
    by_mpiexec = "OMPI_COMM_WORLD_SIZE" in os.environ and "STAGEBENCH_RANK" not in os.environ
    found: str = chosen(setup, "controller", default="mpi" if by_mpiexec else "gloo")
    return found


def settings(knobs: Dict[str, Any], by: str) -> Dict[str, str]:
    """Horovod's variables for the knobs: https://horovod.readthedocs.io/en/stable/tensor-fusion.html."""
    return {
        "HOROVOD_CONTROLLER": by,
        "HOROVOD_CPU_OPERATIONS": by,
        "HOROVOD_FUSION_THRESHOLD": str(int(knobs["fusion_threshold_mb"] * 2**20)),
        "HOROVOD_CYCLE_TIME": str(float(knobs["cycle_time_ms"])),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": PATIENCE,
    }


def numbers(rank: int, hosts: List[str]) -> Dict[str, str]:
    """Who a rank is, among all, among those of its host, and among the ranks of its number on every host."""
    local = hosts[:rank].count(hosts[rank])
    peers = [host for host in dict.fromkeys(hosts) if hosts.count(host) > local]
    found = {"RANK": rank, "SIZE": len(hosts), "LOCAL_RANK": local, "LOCAL_SIZE": hosts.count(hosts[rank])}
    found.update(CROSS_RANK=peers.index(hosts[rank]), CROSS_SIZE=len(peers))
    named = {"HOROVOD_" + name: str(number) for name, number in found.items()}
    return dict(named, HOROVOD_HOSTNAME=hosts[rank])
