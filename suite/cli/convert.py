"""`stagebench data convert` packs a set for frameworks' own readers, `data readers` compares what they deliver."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.tables import Row, show, show_json
from suite.errors import Interrupted, RequestError, Unavailable

if TYPE_CHECKING:
    from suite.adapter import Adapter, Format
    from suite.environments import Interpreter
    from workloads.catalogue import Workload

COLUMNS = ("adapter", "format", "reader", "samples", "mean", "most", "bound", "verdict")
Name = Annotated[str, typer.Argument(help="A data set's name, an image folder or an array file.")]
Network = Annotated[str | None, typer.Option(help="Whose input samples become [default: one that takes the set].")]
Python = Annotated[list[str] | None, typer.Option("--python", help="NAME=PATH: an adapter's interpreter.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(group: typer.Typer) -> None:
    """Add both commands to `stagebench data`."""
    group.command("convert")(convert)
    group.command("readers")(readers)


def convert(
    data: Name,
    to: Annotated[
        list[str] | None, typer.Option(help="Record format (repeatable) [default: all that hold it].")
    ] = None,
    workload: Network = None,
    resize: Annotated[int, typer.Option(min=0, help="Scale photographs' shorter side to this; 0: as they are.")] = 0,
    on_error: Annotated[str, typer.Option(help="`fail`, or `skip`: leave unreadable images out, by name.")] = "fail",
    python: Python = None,
) -> None:
    """Pack a data set in the record formats of the frameworks' own readers; continues where it was interrupted.

    Each format is written by its own framework, whose environment must be there.
    """
    from suite.cli.options import interpreters_from
    from suite.data.records import Packing, pack

    if on_error not in ("fail", "skip"):
        raise RequestError(f"--on-error {on_error!r}: known: fail, skip")
    settings = interpreters_from(python or [])
    source, network = _source(data), _workload(data, workload)
    for adapter, form in _formats(source, to or []):
        interpreter = _interpreter(adapter, settings, asked=bool(to))
        if interpreter is None:
            continue
        packing = Packing(_full(data), source, adapter, form, network, resize, on_error)
        with tempfile.TemporaryDirectory() as scratch, _bar(form.name, _count(source)) as progress:
            try:
                about = pack(packing, interpreter, _count(source), Path(scratch), progress)
            except KeyboardInterrupt:
                raise Interrupted(f"interrupted; the same command continues {packing.place}") from None
        left = about["skipped"]
        typer.echo(f"{packing.place}: {about['samples']:,} samples in {len(about['parts'])} parts, by {adapter.name}")
        for name in left["which"]:
            typer.echo(f"  left out: {name}")
        if left["samples"] > len(left["which"]):
            typer.echo(f"  and {left['samples'] - len(left['which']):,} more")


def readers(
    data: Name,
    adapter: Annotated[list[str] | None, typer.Option(help="Only this adapter (repeatable).")] = None,
    workload: Network = None,
    samples: Annotated[int, typer.Option(min=4, max=1024, help="How many samples to compare.")] = 24,
    python: Python = None,
    as_json: AsJson = False,
) -> None:
    """Read a few samples through every framework's readers and compare them with the plain source's.

    Differences are in levels of 0 to 255 for photographs, in standard deviations for digits. Exit code 1 when a
    reader delivers something else.
    """
    from suite.cli.options import interpreters_from
    from suite.data.readers import Check

    settings, rows = interpreters_from(python or []), []
    with tempfile.TemporaryDirectory() as folder:
        check = Check(_source(data), _workload(data, workload), samples, Path(folder))
        for found in _reading(adapter or []):
            interpreter = _interpreter(found, settings, asked=bool(adapter))
            if interpreter is not None:
                for each in check.readers(found, interpreter):
                    rows.append(each)
                    typer.echo(f"{each.adapter} {each.format}: {each.problem or 'ok'}", err=True)
    if as_json:
        show_json([each.row for each in rows])
    else:
        show([_row(each.row) for each in rows], COLUMNS)
    if not rows or any(each.problem for each in rows):
        raise typer.Exit(1)


def _reading(asked: list[str]) -> "list[Adapter]":
    """The adapters asked for, or all that read data."""
    from suite.plugins import adapters
    from suite.suggest import known

    for name in asked:
        if name not in adapters():
            raise RequestError(f"there is no adapter {name!r}; {known(name, adapters())}")
    found = [adapters()[name] for name in asked or adapters()]
    return [adapter for adapter in found if adapter.capabilities.real_data]


def _row(row: Row) -> Row:
    return {**row, "mean": f"{row['mean']:.3f}", "most": f"{row['most']:.2f}", "verdict": row["problem"] or "ok"}


def _full(data: str) -> str:
    from suite.data.sets import SETS

    return data if data in SETS else str(Path(data).expanduser().absolute())


def _source(data: str) -> Path:
    """Where the set stands; RequestError with the remedy when it does not."""
    from suite.data.sets import SETS, made

    if data in SETS:
        found = made(data)
        if found is None:
            raise RequestError(f"the data set {data!r} is not there or not complete; get it: {SETS[data].remedy}")
        return found
    path = Path(data).expanduser().absolute()
    if not path.exists():
        raise RequestError(f"there is no data set {data!r}: neither a name ({', '.join(SETS)}) nor a path")
    return path


def _workload(data: str, asked: str | None) -> "Workload":
    """The workload asked for, or the first one that takes the set."""
    from suite.data.fits import fit
    from suite.plugins import workloads
    from suite.suggest import known

    if asked is not None and asked not in workloads():
        raise RequestError(f"there is no workload {asked!r}; {known(asked, workloads())}")
    refused = []
    for workload in [workloads()[asked]] if asked else workloads().values():
        found = fit(data, workload.dataset, workload.graph(), Path.cwd())
        if found.outcome is None:
            return workload
        refused.append(found.reason)
    raise RequestError(f"no workload takes {data!r}: {refused[0]}")


def _formats(source: Path, asked: list[str]) -> "list[tuple[Adapter, Format]]":
    from suite.data.sets import kind_of
    from suite.plugins import adapters
    from suite.suggest import known

    kind = kind_of(source)
    all_of_them = [(adapter, form) for adapter in adapters().values() for form in adapter.capabilities.formats]
    names = [form.name for _, form in all_of_them]
    for name in asked:
        if name not in names:
            raise RequestError(f"there is no record format {name!r}; {known(name, names)}")
    found = [(adapter, form) for adapter, form in all_of_them if form.name in (asked or names) and kind in form.kinds]
    if not found:
        raise RequestError(f"{', '.join(asked) or 'no record format'} holds no {kind}, and {source} is such a set")
    return found


def _interpreter(adapter: "Adapter", settings: dict[str, str], asked: bool) -> "Interpreter | None":
    """Its interpreter; without one, an adapter that was not asked for is named and left out."""
    from suite.environments import find

    try:
        return find(adapter, settings)
    except Unavailable as error:
        if asked:
            raise
        typer.echo(f"left out: {error}", err=True)
        return None


def _count(source: Path) -> int:
    from suite.data.sets import kind_of
    from suite.worker.sources import listed, loaded

    return len(listed(str(source))[0]) if kind_of(source) == "folder" else len(loaded(str(source))[1])


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"packing {what}", total=total)
        yield lambda done: progress.update(task, completed=done)
