"""The root command: its own commands, then those that plugins bring."""

from collections import Counter
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command_name

from suite import __version__
from suite.cli import collect, comm, compare, data, doctor, history, listing, new_adapter, predict, run, show, verify
from suite.cli.say import say
from suite.errors import RequestError
from suite.plugins import call, manager

WIDE = {"max_content_width": 120}  # columns of help, where the terminal has them
COMMANDS = (doctor, listing, data, verify, run, show, collect, comm, compare, history, predict, new_adapter)


class OfText(TyperGroup):
    """Commands whose words are text: a run keeps its command, and JSON has no other words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for word in args:
            try:
                word.encode()
            except UnicodeEncodeError:
                raise RequestError(f"{word!a} is not UTF-8 text; rename what it stands for") from None
        return super().parse_args(ctx, args)


def build() -> typer.Typer:
    """The whole command line; RequestError when a plugin is broken."""
    # Plain help: importing what draws it in boxes takes as long as all else together.
    app = typer.Typer(
        cls=OfText,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=WIDE,
    )
    app.callback()(root)
    for module in COMMANDS:
        module.register(app)
    for _, whose in call(manager(), "stagebench_commands", app=app):
        _refuse_twice(app, whose)
    return app


def _refuse_twice(app: typer.Typer, whose: str) -> None:
    """RequestError where a plugin has just brought a command that was there: it would take the other one's place."""
    named = [each.name or get_command_name(each.callback.__name__) for each in app.registered_commands if each.callback]
    named += [each.name for each in app.registered_groups if isinstance(each.name, str)]
    for name, times in Counter(named).items():
        if times > 1:
            raise RequestError(
                f"{whose} brings the command {name!r}, which is there already; rename it, or uninstall it"
            )


def show_version(asked: bool) -> None:
    if asked:
        say(f"stagebench {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=show_version, help="Show the version.")
    ] = False,
) -> None:
    """What distributed training costs, stage by stage, with the proof beside it."""
