"""The root command: its own commands, then those that plugins bring."""

from typing import Annotated

import typer

from suite import __version__
from suite.cli import collect, comm, compare, data, doctor, history, listing, new_adapter, predict, run, show, verify
from suite.plugins import call, manager

WIDE = {"max_content_width": 120}  # columns of help, where the terminal has them
COMMANDS = (doctor, listing, data, verify, run, show, collect, comm, compare, history, predict, new_adapter)


def build() -> typer.Typer:
    """The whole command line; RequestError when a plugin is broken."""
    # Plain help: importing what draws it in boxes takes as long as all else together.
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=WIDE,
    )
    app.callback()(root)
    for module in COMMANDS:
        module.register(app)
    list(call(manager(), "stagebench_commands", app=app))
    return app


def show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"stagebench {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=show_version, help="Show the version.")
    ] = False,
) -> None:
    """What distributed training costs, stage by stage, with the proof beside it."""
