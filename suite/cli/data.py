"""`stagebench data`: make, list and convert data sets; `check` is in a file of its own."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.check import check
from suite.cli.options import bar, full_name, interpreter_for, interpreters_from, source_of, workload_for
from suite.cli.output import Row, say, show_rows
from suite.errors import Interrupted, RequestError, Unavailable
from suite.plugin_errors import ask

if TYPE_CHECKING:
    from suite.contracts.adapter import Adapter, Format
    from suite.worker.packed_set import Marker
    from workloads.catalogue import Workload

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make, list, check and convert data sets.")
make = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make a data set from what scikit-learn ships.")
group.add_typer(make, name="make")
group.command()(check)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="data")


@make.command("imagenet-like")
def make_photographs(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder (default: the data home).")] = None,
    classes: Annotated[int, typer.Option(min=2, max=10_000, help="Class folders.")] = 10,
    images: Annotated[int, typer.Option(min=1, max=100_000, help="Images per class.")] = 20,
    size: Annotated[str, typer.Option(help="Width x height in pixels.")] = "500x375",
    seed: Annotated[int, typer.Option(min=0, help="Decides every crop.")] = 1,
) -> None:
    """JPEG photographs in class folders, of ImageNet's typical size; continues where it was interrupted."""
    from suite.data.make import Photographs, photographs
    from suite.data.sets import SETS, home
    from suite.files import expanded

    width, height = _size(size)
    folder = expanded(output or home() / SETS["imagenet-like"].entry).absolute()
    request = Photographs(folder, classes, images, width, height, seed)
    try:
        written = 0
        with bar("making images", classes * images) as progress:
            for number, path in enumerate(photographs(request), 1):
                written += path.stat().st_size
                progress(number)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the same command continues {folder}") from None
    say(f"{folder}: {classes * images:,} images in {classes:,} classes, {written / 1e6:.1f} MB")
    _say_how_to_use(output, folder)


@make.command("digits")
def make_digits(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Place (default: the data home).")] = None,
) -> None:
    """scikit-learn's handwritten digits, scaled to 28x28."""
    from suite.data.make import digits
    from suite.data.sets import SETS, home
    from suite.files import expanded

    path = expanded(output or home()).absolute()
    path = path if path.suffix == ".npz" else path / SETS["digits"].entry
    say(f"{path}: {digits(path):,} digits of 28x28")
    _say_how_to_use(output, path)


@group.command("list")
def list_sets(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the data sets known by name: made or not, and where."""
    show_rows(sets(), ("name", "made", "path", "help", "remedy"), as_json=as_json)


def sets() -> list[Row]:
    """Return a row for each data set known by name."""
    from suite.data.sets import SETS, home, made

    rows: list[Row] = []
    for known in SETS.values():
        path = made(known.name)
        remedy = None if path else known.remedy
        place = str(path or home() / known.entry)
        rows.append({"name": known.name, "made": bool(path), "path": place, "help": known.help, "remedy": remedy})
    return rows


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})[xX×](\d{1,5})", text.strip())  # noqa: RUF001 - people paste the real sign
    if match is None or not (16 <= int(match[1]) <= 8192 and 16 <= int(match[2]) <= 8192):
        raise RequestError(f"--size {text!r} is not WIDTHxHEIGHT; give sides of 16 to 8192 pixels, such as 500x375")
    return int(match[1]), int(match[2])


def _say_how_to_use(output: Path | None, path: Path) -> None:
    from suite.plan.text import value_text

    if output is not None:
        say(f"in a plan: data = {value_text(str(path))}")


@group.command()
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
    from suite.data.pack import Packing, pack
    from suite.data.sets import count, kind_of
    from suite.files import scratch
    from suite.worker.image_folder import left_out_words, listed

    settings, source = interpreters_from(python or []), source_of(data)
    if on_error not in ("fail", "skip"):
        raise RequestError(f"--on-error {on_error!r} is neither fail nor skip; give one of them")
    network = workload_for(data, workload)
    _check_resize(resize, source, network)
    left_out = left_out_words(listed(str(source)).left_out) if kind_of(source) == "folder" else ""
    if left_out:
        say(left_out)
    packed = 0
    for adapter, form in _formats(source, to or []):
        interpreter = interpreter_for(adapter, settings, asked=bool(to))
        if interpreter is None:
            continue
        if not to and (reason := ask(adapter, "unreadable", form)):
            say(f"skipped: {form.name}: {reason}", err=True)
            continue
        packing = Packing(full_name(data), source, adapter, form, network, resize, on_error)
        with scratch() as folder, bar(f"packing {form.name}", count(source)) as progress:
            try:
                marker = pack(packing, interpreter, folder, progress)
            except KeyboardInterrupt:
                raise Interrupted(f"interrupted; the same command continues {packing.place}") from None
        _show_packed(packing.place, marker)
        packed += 1
    if not packed:
        raise Unavailable("nothing was packed: no framework is ready that writes records; see stagebench doctor")


def _check_resize(resize: int, source: Path, network: "Workload") -> None:
    from suite.data.sets import kind_of

    least = network.preprocessing.resize
    if resize and kind_of(source) != "folder":
        raise RequestError(f"--resize {resize} scales photographs, {source} holds none; leave it out")
    if 0 < resize < least:
        raise RequestError(f"--resize {resize} is less than networks are shown ({least} pixels); give {least} or more")


def _formats(source: Path, asked: list[str]) -> "list[tuple[Adapter, Format]]":
    """Return the formats asked for, or all, each with its adapter; RequestError if none can hold the data set."""
    from suite.contracts.adapter import KINDS
    from suite.data.sets import kind_of
    from suite.plugins import adapters
    from suite.text import chosen

    kind = kind_of(source)
    all_of_them = [(adapter, form) for adapter in adapters().values() for form in adapter.capabilities.formats]
    names = [form.name for _, form in all_of_them]
    if not names:
        raise RequestError("no installed adapter has a record format; the files are read as they are")
    names = chosen("record format", asked, names)
    fitting = [(adapter, form) for adapter, form in all_of_them if form.name in names and kind in form.kinds]
    if not fitting:
        able = ", ".join(form.name for _, form in all_of_them if kind in form.kinds)
        remedy = f"name {able}, for {KINDS[kind]}" if able else "leave them: files are read as they stand"
        raise RequestError(f"{', '.join(asked) or 'no format'} cannot hold {source}; {remedy}")
    return fitting


def _show_packed(place: Path, marker: "Marker") -> None:
    left, parts = marker.skipped, len(marker.parts)
    say(f"{place}: {marker.samples:,} samples in {parts} part{'s' * (parts > 1)}, by {marker.adapter}")
    for name in left.which:
        say(f"  skipped: {name}")
    if left.samples > len(left.which):
        say(f"  and {left.samples - len(left.which):,} more")
