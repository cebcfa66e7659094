"""`stagebench quickstart`: from nothing to a first page. Heavy imports wait until the command runs."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stagebench.suite.cli.options import REPORT_FOLLOWS, OfRun
from stagebench.suite.cli.output import say
from stagebench.suite.errors import Interrupted, RequestError, Unavailable

if TYPE_CHECKING:
    from stagebench.suite.plan import Resolved

PLAN, SCALE = "quick", "quickstart"
# What a plan measures ends within so long; no process starts later.
TIME, FULL_TIME = "3min", "17min"
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def quickstart(
    context: typer.Context,
    output: OfRun = None,
    full: Annotated[
        bool, typer.Option("--full", help="All frameworks that this machine can have: 20 minutes, and gigabytes.")
    ] = False,
) -> None:
    """Make a few frameworks' environments, measure them for some minutes, and write the report's pages.

    Ctrl-C ends it with the pages of what was measured until then; the same command continues.
    """
    from stagebench.suite.plan import load, resolve
    from stagebench.suite.plugins import adapters, launchers, workloads

    path = output or Path("results") / (PLAN if full else SCALE)
    cases = resolve(load(PLAN, None if full else SCALE), adapters(), launchers(), workloads())
    _make(list(dict.fromkeys(each.case.adapter for each in cases)))
    words = ["run", PLAN, "--for", FULL_TIME if full else TIME, "-o", str(path), *([] if full else ["--scale", SCALE])]
    code, error = 0, None
    try:
        code = _command(context, *words, *_data(context, cases))
    except Interrupted as interrupted:
        error = interrupted
    _command(context, "report", str(path))
    _open(path / "report" / "index.html")
    if error:
        raise error
    if code:
        raise typer.Exit(code)


def _make(names: list[str]) -> None:
    """Make the environments of those adapters that no interpreter can run; Unavailable if none is there at last."""
    from stagebench.suite.cli.env import made
    from stagebench.suite.cli.listing import problem_of
    from stagebench.suite.plugins import adapters
    from stagebench.suite.processes.environments import declared

    missing = [name for name in names if problem_of(adapters()[name])]
    sizes = [declared()[name].head for name in missing]
    if missing:
        disk, download = sum(size.disk_mb for size in sizes), sum(size.download_mb for size in sizes)
        size = f"{download:,} MB to download at most, {disk:,} MB on disk"
        say(f"Making {len(missing)} environments ({', '.join(missing)}): about {size}")
    if not [name for name in names if name not in missing or made(name) == 0]:
        raise Unavailable("no framework's environment could be made", "the messages above say why")


def _data(context: typer.Context, cases: "list[Resolved]") -> list[str]:
    """Make the sets of the cases, if they are missing; return an option for synthetic data where one cannot be made."""
    from stagebench.suite.data.sets import made, real
    from stagebench.suite.plugins import workloads

    try:
        for dataset in sorted({workloads()[each.case.workload].dataset for each in cases}):
            if not made(real(dataset)):
                _command(context, "data", "make", dataset)
    except (RequestError, Unavailable) as error:
        say(f"Measuring with synthetic data: {error}")
        return ["--set", "data=synthetic"]
    return []


def _command(context: typer.Context, *words: str) -> int:
    """Run a command of this command line in this process; return its exit code."""
    root: Any = context.find_root().command
    try:
        return int(root.main(list(words), prog_name="stagebench", standalone_mode=False, obj=REPORT_FOLLOWS) or 0)
    except typer.Abort:  # typer turned a Ctrl-C into it
        raise KeyboardInterrupt from None


def _open(page: Path) -> None:
    """Show a page in a browser, if a person is there to see it."""
    if sys.stdout.isatty() and any(map(os.environ.get, DISPLAYS)):
        import webbrowser

        webbrowser.open(page.absolute().as_uri())
