"""A run from its plan to its records: what `stagebench run`, `stagebench comm` and Python's `stagebench.run` share."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from stagebench.suite import __version__
from stagebench.suite.plan import Plan, Resolved
from stagebench.suite.plugins import workloads
from stagebench.suite.processes.query import commit_of, not_handed_on
from stagebench.suite.results.machines import moved
from stagebench.suite.results.records import TRAINING, About, this_host
from stagebench.suite.results.run_folder import RunFolder, held
from stagebench.suite.session.observer import Observer
from stagebench.suite.session.resumable import Session, Settings
from stagebench.suite.worker.homes import without_home
from stagebench.workloads.graph import Graph

Warn = Callable[[str], None]  # called with a sentence that a person should read


def run_folder(*words: str | None) -> Path:
    """Return the default path of a new run: results/WORDS-TIME."""
    return Path("results") / "-".join(filter(None, (*words, f"{datetime.now(UTC):%Y%m%d-%H%M%S}")))


def about_run(kind: str, plan: str, command: Sequence[str], warn: Warn) -> About:
    """Describe a run that begins now; `plan` is the name or path that was given."""
    commit, refusal = commit_of(Path.cwd())
    if refusal:  # another user owns the repository, as in a container that a folder is mounted into
        warn(f"the run will not name its commit: git says {refusal!r}; `git config` has safe.directory for it")
    return About(
        stagebench=__version__,
        kind=kind,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=(Path(command[0]).name, *map(without_home, command[1:])),
        plan=without_home(plan),
        commit=commit,
    )


def measure(
    session: Session,
    folder: RunFolder,
    about: About,
    plan: str,
    warn: Warn,
    scale: str | None = None,
    networks: Sequence[Graph] = (),
) -> Counter[str]:
    """Begin or resume a run in the session's folder; return the number of records of each outcome.

    `plan` is its TOML, `networks` are those that the plan names by their files.
    """
    with held(folder.path):
        folder.begin(about, plan, scale)
        for why in folder.unusable():
            warn(f"{folder.path}: {why}")
        if elsewhere := moved(folder, this_host()):
            warn(elsewhere)
        for why in not_handed_on():
            warn(why)
        for network in networks:
            folder.keep_network(network)
        return session.run()


def measure_plan(
    plan: Plan,
    cases: Sequence[Resolved],
    folder: RunFolder,
    observer: Observer,
    settings: Settings,
    warn: Warn,
    command: Sequence[str],
    interpreters: Mapping[str, str] | None = None,
    named: str | None = None,
) -> Counter[str]:
    """Measure the resolved cases of a plan of trainings; `named` is the plan as the command line has it."""
    session, end = Session(folder, cases, dict(interpreters or {}), observer, settings), settings.end
    about = about_run(TRAINING, named or plan.name, command, warn).but(until=end.clear if end.goes_on else None)
    networks = [workloads()[name].graph() for name in plan.networks]
    return measure(session, folder, about, plan.text, warn, plan.profile, networks)
