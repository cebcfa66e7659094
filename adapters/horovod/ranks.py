"""Horovod's ranks: how they meet over gloo or MPI, and the settings of their exchange.

On GPUs gloo or MPI only connects the ranks; NCCL carries the gradients.

Horovod reads its settings from the environment when it starts, so they are written there. Over MPI the ranks know
each other already; over gloo rank 0 runs a store in which every rank leaves its address, as horovodrun does from
outside.
"""

import os
import socket
import threading
from ipaddress import ip_address
from typing import Any, Dict, List, Tuple

from horovod import __version__
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from stagebench.suite.worker.contract import Group, Joined, Setup, chosen
from stagebench.suite.worker.meeting import Meeting
from stagebench.suite.worker.rendezvous import interface_of, loaded, meeting_place

MPI = "libmpi.so.40"  # Open MPI's, of its versions 4 and 5
BY_MPI = 'join by MPI (knobs.controller = "mpi", launcher mpiexec)'
GLOO_TIMEOUT_S = "300"  # for another rank; gloo's default of 30 is too short while a big network is built


class Ring(Group):
    """A rank's connection to Horovod, and a `Meeting` of the ranks for what Horovod does not offer."""

    def __init__(self, hvd: Any, setup: Setup) -> None:
        """Join all ranks, and wait for them; `hvd` is Horovod's module for the engine."""
        self._hvd = hvd
        place = meeting_place("Horovod's ranks") if setup.world > 1 else ("127.0.0.1", 0)
        self._meeting = Meeting(setup.rank, setup.world, place)
        self._controller = controller(setup)
        self._knobs = setup.knobs
        os.environ.update(settings(self._knobs, self._controller))
        if self._controller == "gloo":
            self._start_over_gloo(setup)
            self.transport = "gloo"
        else:
            hvd.init()
            self.transport = f"mpi: {loaded(MPI)}"
        if setup.device == "cuda":
            self.transport = "nccl"
        self.rank = hvd.rank()
        self.world = hvd.size()

    def joined(self, versions: Dict[str, str]) -> Joined:
        """Return what Horovod connected; `versions` are the framework's."""
        return Joined(self.rank, self.world, self.transport, dict(versions, horovod=__version__))

    def maximum(self, value: float) -> float:
        """Return the largest value of all ranks, by sockets: Horovod's thread is busy with gradients."""
        return self._meeting.maximum(value)

    def close(self) -> None:
        """Leave together, so that no rank closes connections while another rank still exchanges."""
        self._meeting.leave()
        self._hvd.shutdown()

    def notes(self) -> Dict[str, Any]:
        return {"horovod": dict(self._knobs, controller=self._controller)}

    def _start_over_gloo(self, setup: Setup) -> None:
        address_of_name = own_address()
        hosts = self._meeting.exchange(socket.gethostname())
        refuse_loopback(hosts, self._meeting.exchange(address_of_name))
        host = socket.gethostbyname(self._meeting.host)
        store = Store(host) if setup.rank == 0 and setup.world > 1 else None
        (place, *_) = self._meeting.exchange("%s:%d" % store.address if store else "")
        os.environ.update(numbers(setup.rank, hosts))
        interface = interface_of(host)
        if interface:
            os.environ.setdefault("HOROVOD_GLOO_IFACE", interface)
        if place:
            address, _, port = place.rpartition(":")
            os.environ.update(HOROVOD_GLOO_RENDEZVOUS_ADDR=address, HOROVOD_GLOO_RENDEZVOUS_PORT=port)
        self._hvd.init()
        self._meeting.maximum(0.0)
        if store is not None:
            store.close()


def own_address() -> str:
    """Return the address of this host's name; ValueError if it has none: Horovod's gloo would crash looking it up.

    Horovod 0.28.1 hands HOROVOD_GLOO_IFACE to its global context, but not to those of its process sets, one of which
    has all ranks (gloo_context.cc, InitializeForProcessSet). A container's name may be unknown to any resolver.
    """
    name = socket.gethostname()
    try:
        (_, _, _, _, (address, *_)), *_ = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(
            f"this host's own name, {name!r}, has no address ({error.strerror}), and Horovod looks it up: give it "
            f"one in /etc/hosts, or {BY_MPI}"
        )
    return str(address)


def refuse_loopback(hosts: List[str], addresses: List[str]) -> None:
    """Raise ValueError if ranks are on several hosts and a host's name means a loopback address (Debian's 127.0.1.1).

    A rank of one such host would connect to its own host and abort, a rank of the other would wait for it.
    """
    loopbacks = [(host, at) for host, at in zip(hosts, addresses) if ip_address(at.partition("%")[0]).is_loopback]
    if loopbacks and len(set(hosts)) > 1:
        raise ValueError(
            "Horovod's ranks would wait for each other at what their hosts' own names mean, and no other host reaches "
            "%s: in each host's /etc/hosts give its name the address that the others use, or %s"
            % (", ".join("%s at %s" % each for each in dict.fromkeys(loopbacks)), BY_MPI)
        )


class Store:
    """Horovod's store in which ranks leave their gloo addresses while they join, at a free port of `host`."""

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
    """Return "gloo" or "mpi"; for "auto", MPI if Open MPI's mpiexec has started this rank."""
    by_mpiexec = "OMPI_COMM_WORLD_SIZE" in os.environ and "STAGEBENCH_RANK" not in os.environ
    found: str = chosen(setup, "controller", default="mpi" if by_mpiexec else "gloo")
    return found


def settings(knobs: Dict[str, Any], by: str) -> Dict[str, str]:
    """Return Horovod's variables for the knobs: https://horovod.readthedocs.io/en/stable/tensor-fusion.html."""
    return {
        "HOROVOD_CONTROLLER": by,
        "HOROVOD_CPU_OPERATIONS": by,
        "HOROVOD_FUSION_THRESHOLD": str(int(knobs["fusion_threshold_mb"] * 2**20)),
        "HOROVOD_CYCLE_TIME": str(float(knobs["cycle_time_ms"])),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": GLOO_TIMEOUT_S,
    }


def numbers(rank: int, hosts: List[str]) -> Dict[str, str]:
    """Return Horovod's variables for a rank: its number in the world, on its host, and across hosts."""
    local = hosts[:rank].count(hosts[rank])
    peers = [host for host in dict.fromkeys(hosts) if hosts.count(host) > local]
    found = {"RANK": rank, "SIZE": len(hosts), "LOCAL_RANK": local, "LOCAL_SIZE": hosts.count(hosts[rank])}
    found.update(CROSS_RANK=peers.index(hosts[rank]), CROSS_SIZE=len(peers))
    named = {f"HOROVOD_{name}": str(number) for name, number in found.items()}
    return dict(named, HOROVOD_HOSTNAME=hosts[rank])
