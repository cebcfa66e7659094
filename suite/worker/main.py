"""The life of a worker: read the job, join the group, run the task, report the result."""

import faulthandler
import importlib
import os
import platform
import socket
import sys
import threading
import time
import traceback
from typing import List, Optional

import numpy as np

from stagebench.suite.worker import binding, gpus, messages, network
from stagebench.suite.worker.contract import Unavailable, Unsupported
from stagebench.suite.worker.job import FORMAT, Communicate, Group, Job, Prove, Train, read_job
from stagebench.suite.worker.load import Load
from stagebench.suite.worker.machine import machine
from stagebench.suite.worker.member import Member
from stagebench.suite.worker.memory_limit import limit_memory
from stagebench.suite.worker.network import connections
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.ranks import Outbox, Rank, own_rank
from stagebench.suite.worker.tasks import RUN, Diverged
from stagebench.suite.worker.variables import THREADS, Variables, arithmetic, digest, settings, written

LEAVING = 60.0  # seconds that a framework may take to close


class WrongWorld(Exception):
    """A number of ranks or devices, or a rank, other than the one that was asked for."""


def main(argv: List[str]) -> int:
    """Run the job named on the command line; return 0 when it is done. A failure is reported, and exits with 1."""
    began = time.perf_counter()
    job = read_job(argv[0])
    rank = own_rank()
    # This process's own output, and that of its native libraries, goes to a file of this rank's.
    log = os.open(f"{job.output}/rank-{rank.rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    outbox = Outbox(job.output, rank.rank)
    load: Optional[Load] = None
    try:
        limit_memory(job.group.memory_limit)
        cores = bind(job, rank)
        outbox.send(hello(rank, cores, job.group.variables))
        before = network.counters()
        made = make(job, rank)
        joined = join(made, job.group, outbox, cores, began)
        if job.group.straggler and rank.rank == rank.world - 1:
            load = Load(job.group.straggler, cores)
        with outbox.at_work(alone=rank.world == 1):
            RUN[type(job.task)](made, job.task, outbox)
        met = connections() if isinstance(job.task, Train) else []
        outbox.send(messages.Wire(network.growth(before, network.counters()), met))
        if load is not None:
            outbox.send(messages.Notes({"straggler": load.end()}))
        now = with_masks(joined, cores)
        if now != joined:  # the libraries' threads and the readers that began with the network
            outbox.send(now)
    except BaseException as error:
        traceback.print_exc()
        kind = kind_of(error)
        text = f"{type(error).__name__}: {error}"
        text += place_of(error) if kind == "crash" else ""
        outbox.send(messages.Failed(kind, text, traceback.format_exc(), time.time()))
        # Other ranks may wait for this one in a collective call: leave at once, tidy or not. A load ends with its rank.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    close(made, outbox)
    outbox.send(messages.Done())
    outbox.close()
    return 0


def close(made: Member, outbox: Outbox) -> None:
    """Close; if it takes longer than LEAVING, end this process as done: every result is sent.

    MXNet's parameter servers, once in thousands of runs on a busy machine, never let a worker go.
    """

    def give_up() -> None:
        faulthandler.dump_traceback(2)
        outbox.send(messages.Notes({"closing": f"ended by force: the framework took longer than {LEAVING:g} s"}))
        outbox.send(messages.Done())
        os._exit(0)

    patience = threading.Timer(LEAVING, give_up)
    patience.daemon = True
    patience.start()
    made.close()
    patience.cancel()


def hello(rank: Rank, cores: List[int], own: Variables) -> messages.Hello:
    """Describe this process and its host; `own` are the adapter's variables."""
    decisive = arithmetic(os.environ, own)
    return messages.Hello(
        format=FORMAT,
        rank=rank.rank,
        world=rank.world,
        host=socket.gethostname(),
        pid=os.getpid(),
        python=platform.python_version(),
        numpy=np.__version__,
        cores=cores,
        core_of=[cpu.core for cpu in binding.topology(cores)],
        threads={name: os.environ[name] for name in THREADS if name in os.environ},
        settings={**settings(os.environ, own), **written()},
        boot=network.boot(),
        host_cores=os.cpu_count(),
        machine=machine(),
        arithmetic=messages.Arithmetic(list(decisive), digest(decisive)),
    )


def bind(job: Job, rank: Rank) -> List[int]:
    """Bind this rank to cores of its own if the placement asks for them; return the cores that it may use."""
    setup = job.group.setup
    allowed = os.sched_getaffinity(0)
    served = getattr(job.task, "model_server", None) is not None  # by queries from a core of their own
    if job.group.binding == "cores":
        wanted = setup.threads * setup.devices
        ranks = max(job.group.ranks_per_node, rank.local_rank + 1)
        # Readers and the library of communication have threads of their own. A proof has its case's cores.
        reads = isinstance(job.task, Prove) or getattr(job.task, "data", None) is not None
        beside = (setup.readers if reads else 0) + (setup.world > 1) + served
        try:
            allowed = set(binding.shares(binding.topology(allowed), ranks, wanted, beside)[rank.local_rank])
        except ValueError:
            raise Unavailable(
                f"rank {rank.rank} wants {wanted} cores of its own and this host has {len(allowed)} for all of "
                "its ranks; ask for fewer threads or ranks per node, or for binding = 'none'"
            )
        os.sched_setaffinity(0, allowed)
    if served and len(allowed) <= setup.threads:
        raise Unavailable(
            f"threads = {setup.threads} and the generator of queries want {setup.threads + 1} cores, and rank "
            f"{rank.rank} may use {len(allowed)}; ask for fewer threads, or take model_server = 'inprocess'"
        )
    return sorted(allowed)


def make(job: Job, rank: Rank) -> Member:
    """Create the trainer, predictor or communicator that the job names, set up as this rank."""
    place = job.task.communicator if isinstance(job.task, Communicate) else job.group.trainer
    module, _, name = place.partition(":")
    setup = job.group.setup._replace(**rank._asdict())
    made: Member = getattr(importlib.import_module(module), name)(setup)
    return made


def join(made: Member, group: Group, outbox: Outbox, cores: List[int], began: float) -> messages.Joined:
    """Start the member and compare the ranks and devices that were connected with the request; return the message.

    `cores`: that this rank may use. `began`: of this program, on `time.perf_counter`.
    """
    outbox.send(messages.Phase("join"))
    joined = made.start()
    if isinstance(made, Predictor):
        joined = made.meet(joined)
    # Settings again: joining may have set more of them, such as the network interface.
    seen = {**settings(os.environ, group.variables), **written()}
    driven = gpus.driven(made.setup)
    load_s = time.perf_counter() - began
    found = messages.Joined(settings=seen, device_ids=driven, load_s=load_s, **joined._asdict())
    found = with_masks(found, cores)
    outbox.send(found)
    asked = group.setup
    if joined.world != asked.world or joined.rank != made.setup.rank:
        raise WrongWorld(
            f"rank {made.setup.rank} of {asked.world} was asked for, the engine ({joined.transport}) made rank "
            f"{joined.rank} of {joined.world}; the MPI library and the launcher probably come from different "
            "installations"
        )
    if joined.devices != asked.devices:
        raise WrongWorld(
            f"rank {joined.rank} was asked to drive {asked.devices} devices, the framework drives {joined.devices}"
        )
    return found


def with_masks(found: messages.Joined, cores: List[int]) -> messages.Joined:
    """Return the message with the cores of the first thread, and of what a library bound to one: threads, readers."""
    first, others = sorted(os.sched_getaffinity(0)), [*binding.of_threads().values(), *binding.of_children().values()]
    bound = [min(each) for each in others if len(each) == 1 and list(each) not in (first, cores)]
    return found._replace(cores=first, bound=bound)


def place_of(error: BaseException) -> str:
    """Return where the adapter's code, else stagebench's, met an error: " (file, line N: the line)".

    The text is "" if a `raise` of stagebench's own gives the reason.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ours = (f"suite{os.sep}", f"workloads{os.sep}")
    place = ""  # of the last frame in the bundle, an adapter's rather than one of stagebench's own
    in_adapter = False
    raised = False
    for frame in traceback.extract_tb(error.__traceback__):
        name = os.path.relpath(frame.filename, root)
        line = frame.line or ""
        bundled = not name.startswith("..") and "site-packages" not in name
        adapters = bundled and not name.startswith(ours)
        if adapters or (bundled and not in_adapter):
            place = f" ({name}, line {frame.lineno}: {line})"
        in_adapter = in_adapter or adapters
        raised = bundled and not adapters and "raise " in line
    return "" if raised else place


def kind_of(error: BaseException) -> str:
    """Return the outcome that an error means; the controller recognises a framework's own words for lack of memory."""
    if isinstance(error, Unsupported):
        return "unsupported"
    if isinstance(error, Unavailable):
        return "unavailable"
    if isinstance(error, Diverged):
        return "diverged"
    return "oom" if isinstance(error, MemoryError) else "crash"
