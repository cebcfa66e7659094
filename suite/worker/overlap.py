"""How much of an exchange can be hidden behind computation, with and without calls that let the library progress.

The fraction is (t_comm + t_comp - t_both) / min(t_comm, t_comp): 1 when the shorter one
costs nothing, 0 when they follow each other. The computation is made about as long as
the exchange.

Oldest Python: 3.6.
"""

import math
from typing import Any, Dict

from suite.worker.communicator import Communicator, Exchange
from suite.worker.samples import Sampler, rounded

SLICES = 20  # timed, to learn how long one takes


def overlapped(communicator: Communicator, exchange: Exchange, sampler: Sampler, name: str) -> Dict[str, Any]:
    """Samples of the exchange alone, the computation alone, and both, in seconds."""
    compute = communicator.compute

    def alone() -> None:
        exchange.begin().wait()

    comm = sampler.times(name, alone)
    slices = _slices(communicator, min(comm.seconds))

    def computing() -> None:
        for _ in range(slices):
            compute()

    def both() -> None:
        pending = exchange.begin()
        for _ in range(slices):
            compute()
        pending.wait()

    def progressed() -> None:
        pending = exchange.begin()
        for _ in range(slices):
            compute()
            pending.test()
        pending.wait()

    runs = (("comp_s", computing), ("both_s", both), ("progressed_s", progressed))
    found = {key: rounded(sampler.times(name, run).seconds) for key, run in runs}
    return dict(found, comm_s=rounded(comm.seconds), slices=slices)


def _slices(communicator: Communicator, seconds: float) -> int:
    """How many slices of computation take about `seconds`, the same number on every rank."""
    communicator.barrier()
    begin = communicator.clock()
    for _ in range(SLICES):
        communicator.compute()
    communicator.synchronize()
    each = (communicator.clock() - begin) / SLICES
    return int(communicator.maximum(float(max(1, math.ceil(seconds / each)))))
