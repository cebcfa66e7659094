"""Our figures of communication against mpi4py's own benchmarks, in one MPI group, in turns.

    python tests/validation/comm_vs_mpi4py.py --sizes 4 1024 65536 1048576 --rounds 200

Start it as one program with an interpreter that has mpi4py; it starts its own ranks by
the mpiexec beside it: `--ranks` on this machine, or one on each of `--hosts`, of which it
must be the first (STAGEBENCH_LAUNCH_AGENT is the program that starts the others'):

    stagebench lab up 2 --rate 1gbit
    stagebench lab exec lab1 -- .tox/caffempi/bin/python tests/validation/comm_vs_mpi4py.py --hosts lab1,lab2

Compared are

- point-to-point with `mpi4py.bench.pingpong`, which means as many round trips;
- all-reduce with a plain loop that starts each call at a time which all ranks learn from rank 0, by an all-reduce and
  as long before as the suite's (a short one is 4 to 9 % quicker soon after a broadcast), and takes the last rank's end
  (mpi4py's benchmark module has none; one clock serves all ranks on one machine, simulated hosts included).

A round times both ways equally often, and who begins changes from round to round. mpi4py's
module tells means alone, and one stall of a shared machine decides a mean: so rounds are
short and many, and compared are the lower quartiles over the rounds of each way's mean,
theirs / ours, with the bootstrap's 95 % interval. Exit code 1 where a size is not within 5 %.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LIMIT = 0.05
LEAST = 3  # messages of a round
AHEAD, LATE = 9e-5, 5e-6  # seconds from the choice of a start to the start, about as the suite's; after it
BOTH = ("point-to-point", "all-reduce")


def main() -> int:
    """Start the ranks, or be one."""
    options = arguments()
    if "OMPI_COMM_WORLD_RANK" in os.environ or "PMI_RANK" in os.environ:
        return compared(options)
    if options.hosts:
        from over_hosts import command, environ, variables

        hosts = options.hosts.split(",")
        tokens = [*command(hosts, list(variables(hosts))), sys.executable, __file__, *sys.argv[1:]]
        return subprocess.run(tokens, env=environ(variables(hosts)), check=False).returncode
    from stagebench.cluster.dialects import find

    engine = find(Path(sys.executable))
    tokens = [str(engine.path), "-n", str(options.ranks), sys.executable, __file__, *sys.argv[1:]]
    environ = {**engine.dialect.numbers.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environ.update(OMPI_MCA_hwloc_base_binding_policy="none", PRTE_MCA_hwloc_default_binding_policy="none")
    environ.update(OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")  # as the controller sets them
    return subprocess.run(tokens, env={**os.environ, **environ}, check=False).returncode


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 1024, 65536, 1 << 20, 1 << 24], help="bytes")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.002, help="of each way in a round")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", default="", help="separated by commas; this machine first")
    return parser.parse_args()


def compared(options: argparse.Namespace) -> int:
    """One rank; rank 0 tells."""
    from stagebench.adapters.caffempi.comm import MPICommunicator
    from stagebench.suite.worker.ranks import own_rank
    from tests.support.trainers import setup

    own = own_rank()
    communicator = MPICommunicator(setup(rank=own.rank, world=own.world))
    library = communicator.start().transport
    if own.rank == 0:
        print(f"{library}, {own.world} ranks, {options.rounds} rounds of {options.seconds:g} s")
    far = 0
    for operation in BOTH:
        for size in options.sizes:
            far += told(own.rank, operation, size, measured(communicator, operation, size, options))
    communicator.close()
    return int(far > 0)


def measured(communicator, operation, size, options):
    """(theirs, ours) of every round: seconds of a message, each the mean."""
    from stagebench.suite.worker.samples import Sampler

    exchange, apart = communicator.exchange(operation, size // 4), operation != "point-to-point"
    first = Sampler(communicator, 0.05, lambda **_: None).times(operation, exchange.run, apart).seconds
    count = int(communicator.maximum(max(LEAST, options.seconds / min(first))))
    endless = Sampler(communicator, 1e9, lambda **_: None)  # as often as it may, whatever stalls

    def ours():
        found = endless.times(operation, exchange.run, apart, most=2 * count)
        if apart:
            return in_time(communicator.comm, found.seconds, found.late)
        return communicator.maximum(statistics.mean(found.seconds)) / 2

    def theirs():
        if apart:
            return communicator.maximum(plain_allreduce(communicator, size, count))
        return communicator.maximum(pingpong(communicator.comm, size, count))

    found = []
    for number in range(options.rounds):
        values = [way() for way in ((ours, theirs) if number % 2 else (theirs, ours))]
        found.append(tuple(reversed(values) if number % 2 else values))
    return found


def pingpong(comm, size, count):
    """mpi4py.bench's own, for one size; rank 0's mean."""
    from mpi4py import bench

    words = ["--min-size", size, "--max-size", size, "--skip", count, "--loop", count]
    for name in ("large", "huge"):
        words += [f"--skip-{name}", count, f"--loop-{name}", count]
    ((_, mean, _),) = bench.pingpong(comm, args=[str(word) for word in words], verbose=False)
    return mean if comm.rank == 0 else 0.0


def plain_allreduce(communicator, size, count):
    """Each call begins at a time that rank 0 chose, on the machine's clock."""
    import numpy as np

    comm = communicator.comm
    given, taken = np.zeros(size // 4, np.float32), np.zeros(size // 4, np.float32)
    seconds, late = [], []
    for _ in range(2 * count):
        at = communicator.maximum(time.perf_counter() if comm.rank == 0 else 0.0) + AHEAD
        now = time.perf_counter()
        while now < at:
            now = time.perf_counter()
        comm.Allreduce(given, taken)
        seconds.append(time.perf_counter() - at)
        late.append(now - at)
    return in_time(comm, seconds[count:], late[count:])


def in_time(comm, seconds, late):
    """The mean of the last rank's times, of the calls that every rank began in time; of all where none was."""
    import numpy as np
    from mpi4py import MPI

    slowest, latest = np.array(seconds), np.array(late)
    for values in (slowest, latest):
        comm.Allreduce(MPI.IN_PLACE, values, MPI.MAX)
    kept = slowest[latest < LATE]
    return float(kept.mean() if len(kept) else slowest.mean())


def told(rank, operation, size, rounds):
    """Print a line; whether the ratio is too far from 1."""
    ratio, (low, high) = of_quartiles(rounds), interval(rounds)
    far = abs(ratio - 1) > LIMIT
    if rank == 0:
        micros = [statistics.quantiles(values, n=4)[0] * 1e6 for values in zip(*rounds, strict=True)]
        print(
            f"{operation:15} {size:>9} B  theirs {micros[0]:10.2f} us  ours {micros[1]:10.2f} us  "
            f"ratio {ratio:.3f} [{low:.3f}, {high:.3f}]{'  FAIL: beyond 5 %' if far else ''}",
            flush=True,
        )
    return far


def of_quartiles(rounds):
    """The lower quartile of theirs over that of ours."""
    theirs, ours = (statistics.quantiles(values, n=4)[0] for values in zip(*rounds, strict=True))
    return theirs / ours


def interval(rounds, draws=1000):
    """Bootstrap 95 % interval over rounds."""
    stream = random.Random(1)
    found = sorted(of_quartiles(stream.choices(rounds, k=len(rounds))) for _ in range(draws))
    return found[int(0.025 * draws)], found[int(0.975 * draws)]


if __name__ == "__main__":
    sys.exit(main())
