"""The share of an exchange that computation can hide, with and without calls that let the library progress.

The fraction is (t_comm + t_comp - t_both) / min(t_comm, t_comp): 1 when the shorter one costs nothing, 0 when they
follow each other. The computation is made about as long as the exchange.
"""

import math
from statistics import median_high

from stagebench.suite.worker.communicator import Communicator, Exchange
from stagebench.suite.worker.messages import OverlapTimes
from stagebench.suite.worker.samples import Sampler, rounded

SLICES = 20  # timed, to learn how long one takes


def overlapped(
    communicator: Communicator, exchange: Exchange, sampler: Sampler, operation: str, bytes: int
) -> OverlapTimes:
    """Return samples of the exchange (an operation on `bytes` bytes) alone, of computation alone, and of both."""
    name = f"{operation} of {bytes} bytes, hidden"
    compute = communicator.compute

    def alone() -> None:
        exchange.begin().wait()

    slices = _slices(communicator, median_high(sampler.times(name, alone).seconds))

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

    found = sampler.alternating(name, [alone, computing, both, progressed])
    late = rounded([max(turn) for turn in zip(*(samples.late for samples in found))])
    alone_s, compute_s, both_s, progressed_s = (rounded(samples.seconds) for samples in found)
    error = found[0].clock_error
    return OverlapTimes(operation, bytes, alone_s, compute_s, both_s, progressed_s, slices, late, error)


def _slices(communicator: Communicator, seconds: float) -> int:
    """Return the number of slices of computation that take so long, the same number on every rank."""
    for _ in range(SLICES):  # untimed: caches, clocks and, on a GPU, the product's first choice of a kernel
        communicator.compute()
    communicator.synchronize()
    communicator.barrier()
    begin = communicator.clock()
    for _ in range(SLICES):
        communicator.compute()
    communicator.synchronize()
    each = (communicator.clock() - begin) / SLICES
    return int(communicator.maximum(float(max(1, math.ceil(seconds / each)))))
