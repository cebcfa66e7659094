"""The common part of `run` and `comm`: a session in its run folder, from its beginning to the exit code."""

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer

from suite import __version__
from suite.analysis.machine import moved
from suite.cli.output import report_next, say
from suite.processes.query import commit_of, not_handed_on
from suite.results.records import About, this_host
from suite.results.run_folder import RunFolder, held
from suite.session.resumable import FAILURES, Session
from suite.worker.homes import without_home
from workloads.graph import Graph


def run_folder(*words: str | None) -> Path:
    """Return the default path of a new run: results/WORDS-TIME."""
    return Path("results") / "-".join(filter(None, (*words, f"{datetime.now(UTC):%Y%m%d-%H%M%S}")))


def about_run(kind: str, plan: str) -> About:
    """Describe a run that this command line begins now; `plan` is the name or path that was given."""
    commit, refusal = commit_of(Path.cwd())
    if refusal:  # another user owns the repository, as in a container that a folder is mounted into
        say(f"the run will not name its commit: git says {refusal!r}; `git config` has safe.directory for it", err=True)
    return About(
        stagebench=__version__,
        kind=kind,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=(Path(sys.argv[0]).name, *map(without_home, sys.argv[1:])),
        plan=without_home(plan),
        commit=commit,
    )


def measure(
    session: Session,
    folder: RunFolder,
    about: About,
    plan: str,
    scale: str | None = None,
    networks: Sequence[Graph] = (),
) -> Counter[str]:
    """Begin or resume a run in the session's folder; return the number of records of each outcome.

    `plan` is its TOML, `networks` are those that the plan names by their files.
    """
    with held(folder.path):
        folder.begin(about, plan, scale)
        for why in folder.unusable():
            say(f"{folder.path}: {why}", err=True)
        if elsewhere := moved(folder, this_host()):
            say(elsewhere, err=True)
        for why in not_handed_on():
            say(why, err=True)
        for network in networks:
            folder.keep_network(network)
        return session.run()


def conclude(path: Path, outcomes: Counter[str], quiet: bool) -> None:
    """Print the outcome counts and the next command, unless `quiet`; exit with 1 if a case failed."""
    if not quiet:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        say(f"{path}: {counts}\n{report_next(path)}")
    if any(outcomes[failure] for failure in FAILURES):
        raise typer.Exit(1)
