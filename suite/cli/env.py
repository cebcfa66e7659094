"""`stagebench env`: frameworks' own environments. Heavy imports wait until the command runs."""

from pathlib import Path
from typing import Annotated

import typer

from stagebench.suite.cli.options import Json
from stagebench.suite.cli.output import Row, progress, say, show_rows
from stagebench.suite.errors import StagebenchError
from stagebench.suite.plugins import adapters

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Environments: `stagebench env list`.")]
Into = Annotated[
    Path | None,
    typer.Option(help="Another folder for them; a link leads to it from ~/.local/share/stagebench/envs."),
]
Gpu = Annotated[bool, typer.Option("--gpu", help="Take the build for NVIDIA GPUs.")]

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make, list and remove frameworks' environments.")


@group.command("make")
def make_environments(
    names: Names,
    into: Into = None,
    gpu: Gpu = False,
    again: Annotated[bool, typer.Option("--again", help="Make anew what is there.")] = False,
    python: Annotated[str | None, typer.Option(help="The Python to make them with (default: one that fits).")] = None,
) -> None:
    """Make environments with uv, or with venv and pip; stagebench finds them from then on.

    uv's and pip's variables name mirrors and folders of wheels: PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL, UV_TORCH_BACKEND.
    """
    from stagebench.suite.processes.environments import declared
    from stagebench.suite.text import chosen

    chosen("environment", names, declared())
    code = max(made(name, into, gpu, again, python) for name in dict.fromkeys(names))
    if code:
        raise typer.Exit(code)


def made(name: str, into: Path | None = None, gpu: bool = False, again: bool = False, python: str | None = None) -> int:
    """Make an environment unless there is a whole one of these pins; print why not, and return the exit code."""
    from stagebench.suite.processes import environments

    try:
        asked = environments.order(name, into, gpu, python)
        marker = environments.marker_of(asked.folder)
        if not again and marker and environments.current(name, marker) == gpu:
            say(f"{name}: {asked.folder} is there already; --again makes it anew")
        else:
            progress(str(asked))
            environments.make(asked)
        return 0 if works(name) else 1
    except StagebenchError as error:
        say(f"stagebench: {error}", err=True)
        return error.exit_code


def works(name: str) -> bool:
    """Start what an environment is for; print the versions, or what this machine lacks, and return which."""
    from stagebench.suite.processes.environments import users

    problems = []
    for user in users(name):
        if user.name in adapters():
            from stagebench.suite.cli.doctor import adapter_state
            from stagebench.suite.processes.hosts import this_machine

            state = adapter_state(adapters()[user.name], this_machine().gpus)
            ready, missing, place = state["ready"], state.get("missing"), state.get("interpreter", "")
            versions = ", ".join(f"{package} {version}" for package, version in state.get("versions", {}).items())
        else:
            from stagebench.suite.cli.listing import problem_of

            missing, place, versions = problem_of(user), "", ""
            ready = not missing
        problems += [] if ready else [missing]
        if ready:
            say(f"{user.name} is ready{f': {versions}' if versions else ''}{f', with {place}' if place else ''}")
    for problem in problems:
        say(f"{problem}", err=True)
    return not problems


@group.command("list")
def list_environments(gpu: Gpu = False, as_json: Json = False) -> None:
    """List what can be made, with what it takes, and what is made: its disk is measured."""
    from stagebench.suite.processes import environments
    from stagebench.suite.processes.interpreters import made_folder

    rows: list[Row] = []
    for name, environment in environments.declared(gpu).items():
        folder = made_folder() / name
        marker = environments.marker_of(folder)
        made = "no" if not folder.exists() else "unfinished"
        if marker:
            build = environments.current(name, marker)
            made = "of other pins" if build is None else "for GPUs" if build else "yes"
            environment = environments.declared(marker.gpu).get(name, environment)
        rows.append(
            {
                "name": name,
                "made": made,
                "python": marker.python if marker else environment.head.python,
                "disk MB": environments.size_mb(folder.resolve()) if marker else environment.head.disk_mb,
                "download MB": environment.head.download_mb,
                "estimated": environment.head.estimated and not marker,
                "path": str(folder) if marker else None,
            }
        )
    show_rows(rows, ("name", "made", "python", "disk MB", "download MB", "path"), as_json=as_json)
    estimated = ", ".join(row["name"] for row in rows if row["estimated"])
    if estimated and not as_json:
        say(f"estimated, not measured: the disk of {estimated}")


@group.command("remove")
def remove_environments(names: Names) -> None:
    """Remove environments that `stagebench env make` made."""
    from stagebench.suite.processes.environments import remove_made

    for name in names:
        say(f"removed {name}, {remove_made(name):,} MB")
