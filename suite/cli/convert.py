"""`stagebench data convert`: a set packed for frameworks' own readers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.chosen import bar, full_name, interpreter_for, source_of, workload_for
from suite.cli.say import say
from suite.errors import Interrupted, RequestError, Unavailable

if TYPE_CHECKING:
    from suite.contracts.adapter import Adapter, Format
    from suite.worker.packed_set import Marker
    from workloads.catalogue import Workload


def register(group: typer.Typer) -> None:
    group.command("convert")(convert)


def convert(
    data: Annotated[str, typer.Argument(help="A data set's name, an image folder or an array file.")],
    to: Annotated[
        list[str] | None, typer.Option(help="Record format (repeatable) (default: all that hold it).")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Whose input it becomes (default: the smallest that takes it).")
    ] = None,
    resize: Annotated[int, typer.Option(min=0, help="Scale photographs' shorter side to this; 0: as they are.")] = 0,
    on_error: Annotated[str, typer.Option(help="`fail`, or `skip`: leave unreadable images out, by name.")] = "fail",
    python: Annotated[list[str] | None, typer.Option(help="NAME=PATH: an adapter's interpreter.")] = None,
) -> None:
    """Pack a data set in the record formats of the frameworks' own readers; continues where it was interrupted.

    Each format is written by its own framework, whose environment must be there (`stagebench list formats`).
    """
    from suite.cli.options import interpreters_from
    from suite.data.pack import Packing, pack
    from suite.data.record_sets import count
    from suite.files import scratch

    settings, source = interpreters_from(python or []), source_of(data)
    if on_error not in ("fail", "skip"):
        raise RequestError(f"--on-error {on_error!r} is neither fail nor skip; give one of them")
    network = workload_for(data, workload)
    _check_resize(resize, source, network)
    packed = 0
    for adapter, form in _formats(source, to or []):
        interpreter = interpreter_for(adapter, settings, asked=bool(to))
        if interpreter is None or (not to and _of_no_use(adapter, form)):
            continue
        packing = Packing(full_name(data), source, adapter, form, network, resize, on_error)
        with scratch() as folder, bar(f"packing {form.name}", count(source)) as progress:
            try:
                marker = pack(packing, interpreter, folder, progress)
            except KeyboardInterrupt:
                raise Interrupted(f"interrupted; the same command continues {packing.place}") from None
        _show(packing.place, marker)
        packed += 1
    if not packed:
        raise Unavailable("nothing was packed: no framework is ready that writes records; see stagebench doctor")


def _of_no_use(adapter: "Adapter", form: "Format") -> bool:
    missing = adapter.unreadable(form)
    if missing:
        say(f"skipped: {form.name}: {missing}", err=True)
    return bool(missing)


def _check_resize(resize: int, source: Path, network: "Workload") -> None:
    from suite.data.sets import kind_of

    least = network.preprocessing.resize
    if resize and kind_of(source) != "folder":
        raise RequestError(f"--resize {resize} scales photographs, {source} holds none; leave it out")
    if 0 < resize < least:
        raise RequestError(f"--resize {resize} is less than networks are shown ({least} pixels); give {least} or more")


def _formats(source: Path, asked: list[str]) -> "list[tuple[Adapter, Format]]":
    """The formats asked for, or all, each with the adapter that writes it; RequestError when none holds the set."""
    from suite.contracts.adapter import KINDS
    from suite.data.sets import kind_of
    from suite.plugins import adapters
    from suite.suggest import chosen

    kind = kind_of(source)
    all_of_them = [(adapter, form) for adapter in adapters().values() for form in adapter.capabilities.formats]
    names = [form.name for _, form in all_of_them]
    if not names:
        raise RequestError("no installed adapter has a record format; the files are read as they stand")
    wanted = chosen("record format", asked, names)
    found = [(adapter, form) for adapter, form in all_of_them if form.name in wanted and kind in form.kinds]
    if not found:
        able = ", ".join(form.name for _, form in all_of_them if kind in form.kinds)
        remedy = f"name {able}, for {KINDS[kind]}" if able else "leave them: files are read as they stand"
        raise RequestError(f"{', '.join(asked) or 'no format'} cannot hold {source}; {remedy}")
    return found


def _show(place: Path, marker: "Marker") -> None:
    left, parts = marker.skipped, len(marker.parts)
    say(f"{place}: {marker.samples:,} samples in {parts} part{'s' * (parts > 1)}, by {marker.adapter}")
    for name in left.which:
        say(f"  skipped: {name}")
    if left.samples > len(left.which):
        say(f"  and {left.samples - len(left.which):,} more")
