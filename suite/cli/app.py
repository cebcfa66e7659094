"""The root command: its own commands, then those of plugins; those that are a few lines are here."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command_name

from stagebench.suite import __version__
from stagebench.suite.cli import data, env, listing
from stagebench.suite.cli.check_hosts import check_hosts
from stagebench.suite.cli.comm import comm
from stagebench.suite.cli.compare import compare, history
from stagebench.suite.cli.doctor import doctor
from stagebench.suite.cli.output import report_next, say, say_wrapped, show_json
from stagebench.suite.cli.predict import WithSettings, predict
from stagebench.suite.cli.quickstart import quickstart
from stagebench.suite.cli.run import run
from stagebench.suite.cli.show import show
from stagebench.suite.cli.verify import verify
from stagebench.suite.errors import RequestError
from stagebench.suite.files import DOCS
from stagebench.suite.plugins import call, manager
from stagebench.suite.text import chosen, command_line, counted, installing

MOST_PROBLEMS = 20  # lines about a run folder
WIDE = {"max_content_width": 120}  # columns of help, where the terminal has them
NEXT = """{folder} is an installable package of stubs, each of which says what to write. Go on with

  cd {there}
  {install}   # next to stagebench; brings pytest and tox. `stagebench list adapters` shows {name}
  stagebench env make {name:<14}# the framework's own environment: name its packages in environment.txt first
  {python} -m pytest   # the conformance suite: green means that it is an adapter

README.md there names the order in which to write; {page} explains each step."""


class OfText(TyperGroup):
    """Commands whose words are UTF-8 text: a run keeps its command, and JSON can hold nothing else."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for word in args:
            try:
                word.encode()
            except UnicodeEncodeError:
                name = f"{word!a}".replace("\\udc", "\\x")  # the codes of its bytes, as a shell prints them
                raise RequestError(f"the name {name} is no UTF-8 text; rename it (convmv renames many)") from None
        return super().parse_args(ctx, args)


def build() -> typer.Typer:
    """Build the whole command line; RequestError if a plugin is broken."""
    # Plain help: importing rich's boxes takes as long as everything else together.
    app = typer.Typer(
        cls=OfText,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=WIDE,
    )
    app.callback()(root)
    for name, group in (("list", listing.group), ("data", data.group), ("env", env.group)):
        app.add_typer(group, name=name)
    commands: list[Callable[..., None]] = [quickstart, doctor, verify, run, show, comm, check_hosts, compare, history]
    commands += [predict, collect, check_run, export_network, new_adapter]
    for command in commands:
        app.command(cls=WithSettings if command is predict else None)(command)
    for _, whose in call(manager(), "stagebench_commands", app=app):
        called = [
            command.name or get_command_name(command.callback.__name__)
            for command in app.registered_commands
            if command.callback
        ]
        called += [group.name for group in app.registered_groups if isinstance(group.name, str)]
        twice = [name for name, times in Counter(called).items() if times > 1]
        if twice:  # the plugin's command would replace the other one
            raise RequestError(
                f"{whose} brings the command {twice[0]!r}, which is there already; rename it, or uninstall it"
            )
    return app


def show_version(asked: bool) -> None:
    if asked:
        say(f"stagebench {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=show_version, help="Show the version.")
    ] = False,
) -> None:
    """Measure what distributed training costs, stage by stage, with the proof."""


def collect(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that hold different cases.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The new run folder.")],
) -> None:
    """Join runs of different cases, such as those of a cluster's jobs, into one that can be reported on."""
    from stagebench.suite.results.collect import collect as joined

    count = joined(runs, output)
    say(f"{output}: {count} records of {len(runs)} runs\n{report_next(output)}")


def check_run(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, measured here or elsewhere.")],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")] = False,
) -> None:
    """Check that run folders are whole and unaltered; exit code 0: they are, 1: some file is not, 2: not a run."""
    from stagebench.suite.analysis.check_run import UNSEEN
    from stagebench.suite.analysis.check_run import check_run as checked

    found = [checked(run) for run in runs]
    if json:
        show_json([one.to_dict() for one in found])
    for one in () if json else found:
        problems = counted(len(one.problems), "problem")
        say(f"{one.folder.path}: {problems if one.problems else f'whole and unaltered, {one.records} records'}")
        marked = [f"{count} of its cases marked {mark}" for mark, count in one.marks.items()]
        for line in (*one.problems[:MOST_PROBLEMS], *marked, *one.notes):
            say(f"  {line}")
        if len(one.problems) > MOST_PROBLEMS:
            say(f"  and {len(one.problems) - MOST_PROBLEMS} more: --json")
    if not json:
        say_wrapped(UNSEEN)
    raise typer.Exit(int(any(one.problems for one in found)))


def export_network(
    network: Annotated[str, typer.Argument(help="A workload, such as resnet50 or gpt2@64, or a network's file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
) -> None:
    """Write a network as an ONNX model for inference, with the parameters with which inference is measured."""
    from stagebench.suite.files import disk
    from stagebench.suite.plan.networks import register
    from stagebench.suite.plan.overrides import is_path
    from stagebench.suite.plugins import graph_of, workloads
    from stagebench.workloads import weights

    try:
        from stagebench.suite.worker import onnx_network
    except ImportError:
        raise RequestError(f"a network is written by onnx: {installing('stagebench[onnx]')}") from None
    (name,) = [register(Path(network)).name] if is_path(network) else chosen("workload", [network], workloads())
    graph = graph_of(workloads()[name])
    try:
        model = onnx_network.model(graph, weights.for_proof(graph), {})
    except ValueError as error:
        raise RequestError(f"{name} cannot be written: {error}") from error
    with disk(f"cannot write {output}", "name another file with -o", RequestError):
        output.write_bytes(model.SerializeToString())
    size = f"{graph.parameter_count:,} parameters, {len(model.graph.node)} nodes"
    say(f"{output}: {name}, {size}, opset {onnx_network.OPSET}")


def new_adapter(
    name: Annotated[str, typer.Argument(help="What plans, tox and the command line will call it: an identifier.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make the package in.")] = Path(),
) -> None:
    """Write a package with the stubs of a new adapter, its conformance test and its tox environments."""
    from stagebench.suite.scaffold.write import write  # here: other commands need no templates

    folder = write(name, output)
    python, install, there = command_line(sys.executable), installing("-e", ".[conformance]"), command_line(folder)
    page = DOCS / "adapters.md"
    say(NEXT.format(folder=folder, there=there, name=name, python=python, install=install, page=page))
