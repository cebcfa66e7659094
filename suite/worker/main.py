"""A worker's life: read the job, join the group, build, run the task, say what came of it.

Oldest Python: 3.6.
"""

import importlib
import os
import platform
import socket
import sys
import traceback
from typing import Any, Dict, List, Mapping, Union

import numpy as np

from suite.worker import wire
from suite.worker.communicator import Communicator
from suite.worker.contract import SGD, Adam, Optimiser, Setup, Unavailable, Unsupported
from suite.worker.job import FORMAT, THREADS, Outbox, read_job
from suite.worker.ranks import Rank, own_rank
from suite.worker.tasks import TASKS, Diverged
from suite.worker.trainer import Trainer

# What libraries of communication are told by; of Open MPI's not those by which its daemons find each other.
COMMUNICATION = (
    *("OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mpi_yield", "OMPI_MCA_mtl", "OMPI_MCA_pml"),
    *("FI_", "GLOO_", "HOROVOD_", "MPICH_", "MPIR_CVAR_", "NCCL_", "UCX_"),
)
# Nor those by which Horovod's ranks do.
MEETING = (
    *("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_", "HOROVOD_CROSS_"),
    *("HOROVOD_HOSTNAME", "HOROVOD_GLOO_RENDEZVOUS_"),
)


class WrongWorld(Exception):
    """The engine connected another number of ranks than was asked for."""


def main(argv: List[str]) -> int:
    """Run the job named on the command line; 0 when it is done, 1 when it failed and said why."""
    job = read_job(argv[0])
    rank = own_rank()
    redirect_output(os.path.join(job["output"], "rank-%d.log" % rank.rank))
    outbox = Outbox(job["output"], rank.rank)
    try:
        cores = bind(job["case"]["placement"], rank)
        outbox.send(
            "hello",
            format=FORMAT,
            rank=rank.rank,
            world=rank.world,
            host=socket.gethostname(),
            pid=os.getpid(),
            python=platform.python_version(),
            numpy=np.__version__,
            cores=cores,
            host_cores=os.cpu_count(),
            boot=wire.boot(),
            threads={name: os.environ[name] for name in THREADS if name in os.environ},
            settings=settings(os.environ),
        )
        counted = wire.counters()
        made = (make_communicator if job["task"] == "comm" else make_trainer)(job, rank)
        join(made, job, outbox)
        TASKS[job["task"]](made, job, outbox)
        outbox.send("wire", interfaces=wire.growth(counted, wire.counters()))
    except BaseException as error:
        traceback.print_exc()
        outbox.send(
            "failed",
            kind=kind_of(error),
            message="%s: %s" % (type(error).__name__, error),
            traceback=traceback.format_exc(),
        )
        # Other ranks may wait for this one in a collective call: leave at once, tidy or not.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    made.close()
    outbox.send("done")
    outbox.close()
    return 0


def settings(variables: Mapping[str, str]) -> Dict[str, str]:
    """What libraries of communication were told here, by the launcher, the adapter or a person."""
    told = ((name, value) for name, value in sorted(variables.items()) if name.startswith(COMMUNICATION))
    return {name: value for name, value in told if not name.startswith(MEETING)}


def redirect_output(path: str) -> None:
    """Send this process's own output, and that of its native libraries, to a file of this rank's."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)


def bind(placement: Dict[str, Any], rank: Rank) -> List[int]:
    """Give this rank cores of its own where the placement says so; returns the cores it may use."""
    allowed = sorted(os.sched_getaffinity(0))
    if placement["binding"] == "cores":
        wanted = placement["threads"] * placement["devices"]
        own = allowed[rank.local_rank * wanted :][:wanted]
        if len(own) < wanted:
            raise Unavailable(
                "rank %d wants %d cores of its own and this host has %d for all of its ranks; ask for fewer threads "
                "or ranks per node, or for binding = 'none'" % (rank.rank, wanted, len(allowed))
            )
        os.sched_setaffinity(0, own)
        return own
    return allowed


def make_trainer(job: Dict[str, Any], rank: Rank) -> Trainer:
    """The trainer class that the job names, with its setup."""
    trainer: Trainer = named(job["trainer"])(setup_of(job, rank))
    return trainer


def make_communicator(job: Dict[str, Any], rank: Rank) -> Communicator:
    """The communicator class that the job names, with its setup."""
    communicator: Communicator = named(job["communicator"])(setup_of(job, rank))
    return communicator


def named(place: str) -> Any:
    """What "module:name" means."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def setup_of(job: Dict[str, Any], rank: Rank) -> Setup:
    """What this rank is to do."""
    case, devices, parts = job["case"], job["case"]["placement"]["devices"], job.get("parts", 1)
    return Setup(
        rank=rank.rank,
        world=rank.world,
        local_rank=rank.local_rank,
        strategy=case["strategy"],
        device=case["placement"]["device"],
        devices=devices,
        threads=case["placement"]["threads"],
        batch=case["batch"] * devices * parts,
        precision=case["precision"],
        tuning=case["tuning"],
        knobs=case["knobs"],
        optimiser=optimiser_of(case),
        seed=case["seed"],
        # What lies in memory is not sent to processes: the trainer takes it itself.
        readers=0 if case["input"]["mode"] == "memory" else case["readers"],
        prefetch=case["input"]["prefetch"],
        parts=parts,
    )


def optimiser_of(case: Dict[str, Any]) -> Optimiser:
    """The update rule that the case names."""
    if case["optimiser"] == "adam":
        return Adam(case["lr"], case["beta1"], case["beta2"], case["epsilon"], case["weight_decay"])
    return SGD(case["lr"], case["momentum"], case["weight_decay"])


def join(trainer: "Union[Trainer, Communicator]", job: Dict[str, Any], outbox: Outbox) -> None:
    """Start the trainer (or communicator) and compare what the engine connected with what was asked for."""
    outbox.send("phase", name="join")
    joined = trainer.start()
    # Again: who joined has told its libraries more, as the interface to take.
    outbox.send("joined", settings=settings(os.environ), **joined._asdict())
    placement = job["case"]["placement"]
    asked = placement["nodes"] * placement["ranks_per_node"]
    if joined.world != asked or joined.rank != trainer.setup.rank:
        raise WrongWorld(
            "rank %d of %d was asked for, the engine (%s) made rank %d of %d; the MPI library and the launcher "
            "probably come from different installations"
            % (trainer.setup.rank, asked, joined.transport, joined.rank, joined.world)
        )
    if joined.devices != placement["devices"]:
        raise WrongWorld(
            "rank %d was asked to drive %d devices, the framework drives %d"
            % (joined.rank, placement["devices"], joined.devices)
        )


def kind_of(error: BaseException) -> str:
    """The outcome that an error means."""
    if isinstance(error, Unsupported):
        return "unsupported"
    if isinstance(error, Unavailable):
        return "unavailable"
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "out of memory" in str(error).lower():
        return "oom"
    return "crash"
