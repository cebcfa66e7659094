"""`stagebench lab`: hosts on one machine. Heavy imports wait until the command runs, so that --help is quick."""

import os
from dataclasses import replace
from typing import Annotated

import typer

from stagebench.cluster.lab.network import NAME, NETWORK, SETTING, UNSHAPED
from stagebench.suite.cli.options import Json
from stagebench.suite.cli.output import say, show_rows
from stagebench.suite.contracts.hooks import hookimpl

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Hosts on one Linux machine: names, addresses and links of their own; needs root.",
)
Name = Annotated[str, typer.Option("--name", envvar=SETTING, help="The laboratory; its hosts are NAME1, NAME2, ...")]
RATE = "Of every link, each way: 1gbit, 100mbit, ... or none."


@hookimpl
def stagebench_commands(app: typer.Typer) -> None:
    app.add_typer(group, name="lab")


@group.command()
def up(
    count: Annotated[int, typer.Argument(min=1, metavar="N", help="Hosts.")],
    rate: Annotated[str, typer.Option(help=RATE)] = UNSHAPED,
    name: Name = NAME,
    network: Annotated[str, typer.Option(help="The hosts' addresses; no other network is touched.")] = NETWORK,
    slurm: Annotated[bool, typer.Option("--slurm", help="Run a Slurm over the hosts: launcher = 'slurm'.")] = False,
    cores: Annotated[int | None, typer.Option(min=1, help="That Slurm gives each host; the machine's.")] = None,
) -> None:
    """Make N hosts, joined by a switch."""
    from stagebench.cluster.lab import build
    from stagebench.cluster.lab.network import checked_layout, pacing

    given = (cores or len(os.sched_getaffinity(0))) if slurm else 0
    layout = build.up(checked_layout(name, count, network), rate, given).layout
    where = " ".join(filter(None, (f"--name {name}" if name != NAME else "", layout.hosts[0])))
    first = f"Next: stagebench lab exec {where} -- stagebench run PLAN --hosts {','.join(layout.hosts)}"
    say(" ".join(filter(None, (f"{', '.join(layout.hosts)} are up.", pacing(rate), first))))


@group.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def execute(
    host: Annotated[str, typer.Argument(help="Where.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What.")],
    name: Name = NAME,
) -> None:
    """Run a command in a host, in this folder and with these variables; its exit code is the command's.

    Launchers reach the other hosts from there: STAGEBENCH_LAUNCH_AGENT is set.
    """
    from stagebench.cluster.lab.state import entering, environment, load

    state = load(name)
    tokens = entering(state, state.layout.known(host), command[1:] if command[0] == "--" else command)
    os.execvpe(tokens[0], tokens, environment(state))  # it becomes the command: signals reach it


@group.command()
def shape(rate: Annotated[str, typer.Argument(help=RATE)], name: Name = NAME) -> None:
    """Give every link another rate."""
    from stagebench.cluster.lab import network
    from stagebench.cluster.lab.state import load

    state = load(name)
    network.shape(state.layout, rate)
    replace(state, rate=rate).save()


@group.command()
def status(name: Name = NAME, as_json: Json = False) -> None:
    """Hosts, addresses, the links' rate, the bytes that crossed them, and who runs there."""
    from stagebench.cluster.lab.build import look
    from stagebench.cluster.lab.state import load

    columns = ("host", "address", "link", "rate", "received", "sent", "processes")
    show_rows(look(load(name)), columns, as_json=as_json)


@group.command()
def down(name: Name = NAME) -> None:
    """End what runs in the hosts, then remove them and all that belongs to them."""
    from stagebench.cluster.lab import build
    from stagebench.cluster.lab.state import load

    state = load(name)
    build.down(state)
    say(f"{', '.join(state.layout.hosts)} are gone.")
