"""`stagebench run`: measure a plan. Heavy imports wait until the command runs, so that --help is quick."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(run)


def run(
    plan: Annotated[str, typer.Argument(help="A ready-made plan's name (`stagebench list plans`) or a TOML file.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Run folder; an existing one is resumed.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="One of the plan's scales: `small` is a few minutes on two cores.")
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(help="A,B,...: hosts of the cases that name none; one on n nodes takes the first n."),
    ] = None,
    launcher: Annotated[
        str, typer.Option(help="Starts the cases whose launcher the plan leaves open: mpiexec, slurm, ...")
    ] = "auto",
    python: Annotated[list[str] | None, typer.Option(help="NAME=PATH: an adapter's interpreter.")] = None,
    proofs: Annotated[bool, typer.Option(help="Prove each case before measuring it; rows without are marked.")] = True,
    retry: Annotated[
        bool, typer.Option("--retry", help="Measure again what failed, or lacked something, before.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome counts as JSON, and nothing else.")] = False,
) -> None:
    """Measure every case of a plan: proofs first, then interleaved rounds of processes.

    Stop it at any time: the same command goes on where it stopped.
    """
    import json as encoder
    import sys
    from datetime import UTC, datetime

    from suite import __version__
    from suite.cli.display import for_terminal
    from suite.cli.options import hosts_from, interpreters_from
    from suite.contracts.case import Case
    from suite.contracts.observer import Observer
    from suite.plan import load, resolve
    from suite.plugins import adapters, launchers, workloads
    from suite.results.lock import held
    from suite.results.records import About, Record
    from suite.results.run_folder import RunFolder
    from suite.session.resumable import FAILURES
    from suite.session.training import Settings, TrainingSession

    loaded = load(plan, scale)
    resolved = resolve(loaded, adapters(), launchers(), workloads(), hosts_from(hosts), launcher)
    started = datetime.now(UTC)
    about = About(
        stagebench=__version__,
        created=started.isoformat(timespec="seconds"),
        command=(Path(sys.argv[0]).name, *sys.argv[1:]),
        plan=plan,
    )
    path = output or Path("results") / "-".join(filter(None, (loaded.name, scale, f"{started:%Y%m%d-%H%M%S}")))
    interpreters = interpreters_from(python or [])
    observer: Observer[Case, Record] = Observer() if json else for_terminal()
    with held(path):
        folder = RunFolder(path).begin(about, loaded.text, scale)
        outcomes = TrainingSession(folder, resolved, interpreters, observer, Settings(proofs, retry, scale)).run()
    if json:
        typer.echo(encoder.dumps({"folder": str(path), "outcomes": outcomes}))
    else:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        typer.echo(f"{path}: {counts}. Next: stagebench report {path} -o {path}/report")
    if any(outcomes[failure] for failure in FAILURES):
        raise typer.Exit(1)
