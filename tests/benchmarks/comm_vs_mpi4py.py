"""Our figures of communication against mpi4py's own benchmarks, in one MPI group, in turns.

    python tests/benchmarks/comm_vs_mpi4py.py --sizes 4 1024 65536 1048576 --rounds 20

Start it as one program with an interpreter that has mpi4py; it starts its own ranks by
the mpiexec beside it. Compared are

- point-to-point with `mpi4py.bench.pingpong`, which means as many round trips;
- all-reduce with the plain loop that a user of mpi4py writes (its benchmark module has none).

A round times both ways as often as ours chooses; who begins changes from round to
round. Compared are medians over the rounds of the ratio theirs / ours of mean times,
with the bootstrap's 95 % interval. Exit code 1 where a size is not within 5 %.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "benchmarks")]

LIMIT = 0.05
BOTH = ("point-to-point", "all-reduce")


def main() -> int:
    """Start the ranks, or be one."""
    options = arguments()
    if "OMPI_COMM_WORLD_RANK" in os.environ or "PMI_RANK" in os.environ:
        return compared(options)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    tokens = [str(mpiexec), "-n", str(options.ranks), sys.executable, __file__, *sys.argv[1:]]
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    allowed.update(OMPI_MCA_hwloc_base_binding_policy="none", PRTE_MCA_hwloc_default_binding_policy="none")
    return subprocess.run(tokens, env={**os.environ, **allowed}, check=False).returncode


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 1024, 65536, 1 << 20, 1 << 24], help="bytes")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each way in a round")
    parser.add_argument("--ranks", type=int, default=2)
    return parser.parse_args()


def compared(options: argparse.Namespace) -> int:
    """One rank; rank 0 tells."""
    from adapters.caffempi.comm import MPICommunicator
    from suite.worker.ranks import own_rank
    from suite.worker.trainer import SGD, Setup

    own = own_rank()
    rule = SGD(0.0, 0.0, 0.0)
    setup = Setup(own.rank, own.world, 0, "", "cpu", 1, 1, "float32", "default", {}, rule, 1, 0)
    communicator = MPICommunicator(setup)
    library = communicator.start().transport
    if own.rank == 0:
        print(f"{library}, {own.world} ranks, {options.rounds} rounds of {options.seconds:g} s")
    far = 0
    for operation in BOTH:
        for size in options.sizes:
            rounds = [one_round(communicator, operation, size, options, number) for number in range(options.rounds)]
            far += told(own.rank, operation, size, rounds)
    communicator.close()
    return int(far > 0)


def one_round(communicator, operation, size, options, number):
    """(theirs, ours): seconds of a message, each the mean."""
    from suite.worker.samples import Sampler

    exchange = communicator.exchange(operation, size // 4)
    apart = operation != "point-to-point"

    def ours():
        sampler = Sampler(communicator, options.seconds, lambda **_: None)
        found = sampler.times(operation, exchange.run, apart).seconds
        return slowest(communicator, statistics.mean(found)) / (1 if apart else 2), len(found)

    def theirs(count):
        return slowest(communicator, (plain_allreduce if apart else pingpong)(communicator.comm, size, count))

    if number % 2:
        first, count = ours()
        return theirs(count), first
    _, count = ours()
    return theirs(count), ours()[0]


def slowest(communicator, seconds):
    """Both tell the same on every rank."""
    return communicator.maximum(seconds)


def pingpong(comm, size, count):
    """mpi4py.bench's own, for one size; rank 0's mean."""
    from mpi4py import bench

    words = ["--min-size", size, "--max-size", size, "--skip", count // 10 + 1, "--loop", count]
    for name in ("large", "huge"):
        words += [f"--skip-{name}", count // 10 + 1, f"--loop-{name}", count]
    ((_, mean, _),) = bench.pingpong(comm, args=[str(word) for word in words], verbose=False)
    return mean if comm.rank == 0 else 0.0


def plain_allreduce(comm, size, count):
    """As OSU's micro-benchmarks and mpi4py's demos time it: a barrier, then the clock around one call."""
    import numpy as np

    given, taken = np.zeros(size // 4, np.float32), np.zeros(size // 4, np.float32)
    total = 0.0
    for turn in range(-(count // 10 + 1), count):
        comm.Barrier()
        begin = time.perf_counter()
        comm.Allreduce(given, taken)
        total += (time.perf_counter() - begin) * (turn >= 0)
    return total / count


def told(rank, operation, size, rounds):
    """Print a line; whether the ratio is too far from 1."""
    from alternating import interval

    ratios = [theirs / ours for theirs, ours in rounds]
    ratio, (low, high) = statistics.median(ratios), interval(ratios)
    far = abs(ratio - 1) > LIMIT
    if rank == 0:
        micros = [statistics.median(values) * 1e6 for values in zip(*rounds, strict=True)]
        print(
            f"{operation:15} {size:>9} B  theirs {micros[0]:10.2f} us  ours {micros[1]:10.2f} us  "
            f"ratio {ratio:.3f} [{low:.3f}, {high:.3f}]{'  FAIL: beyond 5 %' if far else ''}",
            flush=True,
        )
    return far


if __name__ == "__main__":
    sys.exit(main())
