"""`stagebench new-adapter`: a package to fill in."""

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.say import say
from suite.shell import command_line

NEXT = """{folder} is an installable package of stubs, each of which says what to write. Go on with

  cd {there}
  pip install -e '.[conformance]'   # beside stagebench; then `stagebench list adapters` shows {name}
  tox run -e {name}                 # the framework's own environment: name its packages in tox.ini first
  pytest                            # the conformance suite: green means that it is an adapter

README.md there names the order in which to write; docs/adapters.md of stagebench explains each step."""


def register(app: typer.Typer) -> None:
    app.command("new-adapter")(new_adapter)


def new_adapter(
    name: Annotated[str, typer.Argument(help="What plans, tox and the command line will call it: an identifier.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make the package in.")] = Path(),
) -> None:
    """Write a package with the stubs of a new adapter, its conformance test and its tox environments."""
    from suite.scaffold.write import write  # here: other commands need no templates

    folder = write(name, output)
    say(NEXT.format(folder=folder, there=command_line(folder), name=name))
