"""Horovod's ranks: how they find each other over gloo or MPI, and with which of its settings they exchange.

On GPUs these two only connect the ranks; NCCL carries the gradients.

Horovod reads its settings from the environment when it starts, and so they are written there.
Over MPI the ranks know each other already; over gloo rank 0 keeps a store in which everybody
leaves an address (what horovodrun does from outside).
"""

import os
import socket
import threading
from ipaddress import ip_address
from typing import Any, Dict, List, Tuple

from horovod import __version__
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from suite.worker.contract import Group, Joined, Setup
from suite.worker.meeting import Meeting
from suite.worker.mpi_library import loaded
from suite.worker.rendezvous import interface_of, meeting_place
from suite.worker.tuning import chosen

MPI = "libmpi.so.40"  # Open MPI's, of its versions 4 and 5
BY_MPI = 'join by MPI (knobs.controller = "mpi", launcher mpiexec)'
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
        meant = meant_by_own_name()
        hosts = self._meeting.exchange(socket.gethostname())
        refuse_loopback(hosts, self._meeting.exchange(meant))
        own = socket.gethostbyname(self._meeting.host)
        store = Store(own) if setup.rank == 0 and setup.world > 1 else None
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


def meant_by_own_name() -> str:
    """The address of this host's own name; ValueError without one: Horovod's gloo looks it up, and crashes there.

    Horovod 0.28.1 hands HOROVOD_GLOO_IFACE to its global context, but not to those of its process sets, one of which
    has all ranks (gloo_context.cc, InitializeForProcessSet). Containers may have a name that nobody knows.
    """
    name = socket.gethostname()
    try:
        (_, _, _, _, (address, *_)), *_ = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(
            "this host's own name, %r, has no address (%s), and Horovod looks it up: give it one in "
            "/etc/hosts, or %s" % (name, error.strerror, BY_MPI)
        )
    return str(address)


def refuse_loopback(hosts: List[str], addresses: List[str]) -> None:
    """ValueError where ranks of several hosts have loopback addresses (Debian's 127.0.1.1), by what their names mean.

    Of two such hosts' ranks one would abort, because it connects to its own host, and the other one wait for it.
    """
    met = [(host, at) for host, at in zip(hosts, addresses) if ip_address(at.partition("%")[0]).is_loopback]
    if met and len(set(hosts)) > 1:
        raise ValueError(
            "Horovod's ranks would wait for each other at what their hosts' own names mean, and no other host reaches "
            "%s: in each host's /etc/hosts give its name the address that the others use, or %s"
            % (", ".join("%s at %s" % each for each in dict.fromkeys(met)), BY_MPI)
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
