"""Can the placement exist? Wrong ones are slips of the plan, whatever the adapter."""

import os
from collections.abc import Sequence

from suite.environments.hosts import here
from suite.plan.problems import Problems
from suite.plan.sweep import Choice

# Launchers that start processes on the machine they run on, and on no other.
ONE_HOST = ("local",)
# Launchers that may start them anywhere, though no host is named.
ELSEWHERE = ("slurm",)


def hosts(choice: Choice, given: Sequence[str]) -> tuple[str, ...]:
    """Where a choice runs: on its block's hosts, else on the first of those `given`; nowhere in particular: ()."""
    if choice.block.hosts or not given:
        return tuple(choice.block.hosts)
    first = tuple(given[: choice["nodes"]])
    return () if choice["nodes"] == 1 and here(first[0]) else first


def check(choice: Choice, launcher: str, taken: Sequence[str], problems: Problems) -> None:
    """Add what makes this placement impossible; `taken` are the hosts that it takes."""
    written, nodes, named = choice.written, choice["nodes"], choice.block.hosts
    if nodes > 1 and launcher in ONE_HOST:
        problems.add(
            written.path("nodes"),
            f"nodes = {nodes}, but the launcher {launcher!r} knows only this machine; "
            "use nodes = 1 with more ranks, or a launcher such as 'mpiexec' with hosts",
        )
    if named and len(named) != nodes:
        problems.add(written.path("hosts"), f"{len(named)} hosts for nodes = {nodes}; name one host per node")
    if choice["binding"] == "cores" and nodes == 1 and not taken and launcher not in ELSEWHERE:
        _check_cores(choice, sorted(os.sched_getaffinity(0)), problems)


def _check_cores(choice: Choice, cores: Sequence[int], problems: Problems) -> None:
    ranks, threads = choice["ranks"], choice["threads"] * choice["devices"]
    if ranks * threads > len(cores):
        problems.add(
            choice.written.path("binding"),
            f"binding = 'cores' with {ranks} ranks of {threads} threads wants {ranks * threads} cores, "
            f"this machine offers {len(cores)}; lower ranks or threads, or write binding = 'none'",
        )
