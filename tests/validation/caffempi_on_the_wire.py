"""How much of its exchange caffempi hides over a wire, and its iterations against PyTorch DDP's over gloo there.

Run it on the first of two hosts, by an interpreter that has both (the environment
`caffempi`); STAGEBENCH_LAUNCH_AGENT is the program that starts the others' ranks:

    stagebench lab up 2 --rate 1gbit
    stagebench lab exec lab1 -- .tox/caffempi/bin/python tests/validation/caffempi_on_the_wire.py --hosts lab1,lab2

All that is compared takes turns in one group of ranks: caffempi's iteration, the same
without any exchange, its exchange alone, its stages, and DDP's iteration, with and without
exchange. Prints medians over the rounds, and

    hidden   = exchange alone - (iteration - iteration without exchange)
    overlappable = what a link that never rests could hide (suite/analysis/overlappable.py)
    possible = what processors that never rest could hide: sending, too, takes their time

The latter counts where ranks share the machine, as laboratory hosts do: an iteration that keeps
all its processors busy hides nothing more, however good the schedule.

Exit code 1, and a FAIL, unless hidden is at least 85 % of the smaller of the two, and DDP's
iteration takes at least as long as ours, for every network.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HIDDEN, RATIO = 0.85, 1.0  # at least

Times = dict[str, list[float]]


def main() -> int:
    """Start the ranks, network after network, or be one; 1 when a network fails."""
    options = arguments()
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return compare(options)
    from over_hosts import environ

    codes = [
        subprocess.run(command(options, network), env=environ(variables(options)), check=False).returncode
        for network in options.network
    ]
    return int(any(codes))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", required=True, help="separated by commas; this machine first")
    parser.add_argument("--network", nargs="+", default=("resnet50", "alexnet"))
    parser.add_argument("--batch", type=int, default=4, help="samples per rank")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--precision", choices=("float32", "float64"), default="float32")
    parser.add_argument("--tuning", choices=("default", "tuned"), default="tuned")
    parser.add_argument("--overlap", choices=("auto", "none", "layerwise", "merged"), default="merged")
    parser.add_argument("--progress", choices=("auto", "layers", "thread"), default="auto")
    return parser.parse_args()


def command(options: argparse.Namespace, network: str) -> list[str]:
    """One rank on every host."""
    from over_hosts import command

    tokens = command(options.hosts.split(","), list(variables(options)))
    return [*tokens, sys.executable, __file__, *sys.argv[1:], "--network", network]  # the last word counts


def variables(options: argparse.Namespace) -> dict[str, str]:
    """What the controller would give every rank."""
    from over_hosts import variables

    from stagebench.adapters.caffempi.plugin import KEEP_MEMORY

    return variables(options.hosts.split(",")) | (KEEP_MEMORY if options.tuning == "tuned" else {})


def compare(options: argparse.Namespace) -> int:
    """One rank's part, on one network; its code is rank 0's verdict."""
    from caffempi_vs_ddp import trainers

    from stagebench.suite.worker.feed import share, synthetic
    from stagebench.suite.worker.ranks import own_rank
    from stagebench.workloads import weights
    from stagebench.workloads.networks import by_name

    rank, (network,) = own_rank(), options.network
    graph = by_name()[network].graph().without_dropout()
    knobs = {"overlap": options.overlap, "progress": options.progress}
    ours, theirs = trainers(options, rank, (1e-4, 0.9, 0.0), "data_parallel", knobs)
    host = share(synthetic(graph, options.batch * rank.world, 1), rank.rank, options.batch)
    for trainer in (ours, theirs):
        trainer.start()
        trainer.build(graph, dict(weights.initial(graph)))
    seconds, busy = turns(options.rounds, ours, ways(ours, ours.to_device(host), theirs, theirs.to_device(host)))
    failures = verdict(network, seconds, busy, ours.layer_times(None), ours.notes()) if rank.rank == 0 else []
    for failure in failures:
        print(f"FAIL {network}: {failure}", flush=True)
    theirs.close()
    ours.close()
    return int(bool(failures))


def ways(ours: Any, batch: Any, theirs: Any, their_batch: Any) -> dict[str, Callable[[], Any]]:
    """What takes turns."""

    def stages() -> None:
        ours.forward(batch)
        ours.backward()

    return {
        "iteration": lambda: ours.step(batch),
        "DDP": lambda: theirs.step(their_batch),
        "without exchange": lambda: ours.step_alone(batch),
        "DDP without exchange": lambda: theirs.step_alone(their_batch),
        "forward and backward": stages,
        "exchange alone": ours.communicate,
        "update": ours.update,
    }


def turns(rounds: int, ours: Any, ways: dict[str, Callable[[], Any]]) -> tuple[Times, Times]:
    """Seconds of the slowest rank and of this machine's processors.

    A number a round, after a round that does not count; who begins changes.
    """
    from stagebench.suite.worker.noise import Meter

    seconds: Times = {name: [] for name in ways}
    busy: Times = {name: [] for name in ways}
    meter = Meter()
    for number in range(rounds + 1):
        first = number % len(ways)
        for name in [*list(ways)[first:], *list(ways)[:first]]:
            ours.maximum(0.0)
            meter.begin()
            begin = time.perf_counter()
            ways[name]()
            seconds[name].append(ours.maximum(time.perf_counter() - begin))
            used = meter.end()
            busy[name].append(used.busy_cpu_s if used else 0.0)
        if not number:
            ours.forget_layer_times()
    seconds, busy = ({name: found[1:] for name, found in each.items()} for each in (seconds, busy))
    return seconds, busy


def verdict(network: str, seconds: Times, busy: Times, layers: list[Any], notes: dict[str, Any]) -> list[str]:
    """Print the figures; what is not as it must be."""
    from stagebench.suite.analysis.overlappable import overlappable

    middle, work = ({name: statistics.median(found) for name, found in each.items()} for each in (seconds, busy))
    hidden = middle["exchange alone"] - (middle["iteration"] - middle["without exchange"])
    most = overlappable(layers, middle["exchange alone"], middle["update"]) or 0.0
    cores = len(os.sched_getaffinity(0))
    least = (work["without exchange"] + work["exchange alone"]) / cores
    possible = middle["exchange alone"] - max(0.0, least - middle["without exchange"])
    ratios = [theirs / ours for theirs, ours in zip(seconds["DDP"], seconds["iteration"], strict=True)]
    megabytes = sum(layer.bytes for layer in layers) / 1e6
    start = f", a start-up is {1e3 * notes['startup_s']:.2f} ms" if "startup_s" in notes else ""
    print(f"{network}: {notes['overlap']}, {len(notes['groups'])} groups, {notes['progress']}{start}")
    for name, found in seconds.items():
        print(f"  {name:20} {1e3 * middle[name]:8.1f} ms  ({1e3 * min(found):.1f} to {1e3 * max(found):.1f})")
    print(
        f"  {megabytes / middle['exchange alone']:.1f} MB/s, at best {megabytes / min(seconds['exchange alone']):.1f}"
    )
    rest = 1.0 - work["iteration"] / cores / middle["iteration"]
    share = hidden / min(most, possible)
    print(f"  processors: {1e3 * work['exchange alone']:.1f} ms for an exchange, idle for {rest:.1%} of an iteration")
    print(
        f"  hidden {1e3 * hidden:.1f} ms of overlappable {1e3 * most:.1f}, possible {1e3 * possible:.1f}: {share:.3f}"
    )
    print(f"  DDP / caffempi {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
    failures = [] if share >= HIDDEN else [f"{share:.3f} of what can be hidden is, below {HIDDEN}"]
    return failures + (
        [] if statistics.median(ratios) >= RATIO else [f"DDP / caffempi {statistics.median(ratios):.3f} < {RATIO}"]
    )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
