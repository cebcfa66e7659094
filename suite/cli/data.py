"""`stagebench data`: make, list, check and convert data sets. Heavy imports wait until the command runs."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stagebench.suite.cli.options import Json, Pythons, interpreters_from, knobs_from
from stagebench.suite.cli.output import Row, say, show_json, show_rows
from stagebench.suite.contracts.adapter import KINDS, Adapter, Format
from stagebench.suite.errors import Interrupted, RequestError, Unavailable
from stagebench.suite.files import expanded, scratch, stands
from stagebench.suite.plugin_errors import ask
from stagebench.suite.plugins import adapters, workloads
from stagebench.suite.text import chosen, counted, known, shown
from stagebench.workloads.catalogue import Workload

if TYPE_CHECKING:
    from stagebench.suite.data.reader_check import Check
    from stagebench.suite.processes.interpreters import Interpreter
    from stagebench.suite.worker.packed_set import Marker

COLUMNS = ("adapter", "format", "reader", "samples", "mean", "most", "bound", "verdict")
DataSet = Annotated[str, typer.Argument(help="A data set's name, an image folder, an array file or a text.")]
Taker = Annotated[str | None, typer.Option(help="Whose input it becomes (default: the smallest that takes it).")]

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make, list, check and convert data sets.")
make = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make a data set without a network.")
group.add_typer(make, name="make")


@make.command("imagenet-like")
def make_photographs(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder (default: the data home).")] = None,
    classes: Annotated[int, typer.Option(min=2, max=10_000, help="Class folders.")] = 10,
    images: Annotated[int, typer.Option(min=1, max=100_000, help="Images per class.")] = 20,
    size: Annotated[str, typer.Option(help="Width x height in pixels.")] = "500x375",
    seed: Annotated[int, typer.Option(min=0, help="Decides every crop.")] = 1,
) -> None:
    """JPEG photographs in class folders, of ImageNet's typical size; continues where it was interrupted."""
    from stagebench.suite.data.make import Photographs, photographs
    from stagebench.suite.data.sets import SETS, home

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
    from stagebench.suite.data.make import digits
    from stagebench.suite.data.sets import SETS, home

    path = expanded(output or home()).absolute()
    path = path if path.suffix == ".npz" else path / SETS["digits"].entry
    say(f"{path}: {digits(path):,} digits of 28x28")
    _say_how_to_use(output, path)


@make.command("python-topics")
def make_python_topics(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Place (default: the data home).")] = None,
) -> None:
    """The text of Python's own language reference, from its pydoc; it differs between releases of Python."""
    from stagebench.suite.data.make import python_topics
    from stagebench.suite.data.sets import SETS, home
    from stagebench.suite.worker.text_files import digest

    path = expanded(output or home()).absolute()
    path = path if path.suffix == ".txt" else path / SETS["python-topics"].entry
    say(f"{path}: {python_topics(path):,} bytes, whose SHA-256 begins with {digest(str(path))}")
    _say_how_to_use(output, path)


@group.command("list")
def list_sets(as_json: Json = False) -> None:
    """List the data sets known by name: made or not, and where."""
    show_rows(sets(), ("name", "made", "path", "help", "remedy"), as_json=as_json)


def sets() -> list[Row]:
    """Return a row for each data set known by name."""
    from stagebench.suite.data.sets import SETS, home, made

    rows: list[Row] = []
    for data in SETS.values():
        path = made(data.name)
        remedy = None if path else data.remedy
        place = str(path or home() / data.entry)
        rows.append({"name": data.name, "made": bool(path), "path": place, "help": data.help, "remedy": remedy})
    return rows


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})[xX×](\d{1,5})", text.strip())  # noqa: RUF001 - people paste the real sign
    if match is None or not (16 <= int(match[1]) <= 8192 and 16 <= int(match[2]) <= 8192):
        raise RequestError(f"--size {text!r} is not WIDTHxHEIGHT; give sides of 16 to 8192 pixels, such as 500x375")
    return int(match[1]), int(match[2])


def _say_how_to_use(output: Path | None, path: Path) -> None:
    from stagebench.suite.plan.text import value_text

    if output is not None:
        say(f"in a plan: data = {value_text(str(path))}")


@group.command()
def check(
    data: DataSet,
    readers: Annotated[bool, typer.Option("--readers", help="Compare what every framework's readers deliver.")] = False,
    adapter: Annotated[list[str] | None, typer.Option(help="Only this adapter's readers (repeatable).")] = None,
    workload: Taker = None,
    device: Annotated[
        str | None, typer.Option(help="What readers read for: `cpu` or `cuda` (default: each adapter's first).")
    ] = None,
    knob: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of the adapters that have it (repeatable).")
    ] = None,
    samples: Annotated[int, typer.Option(min=8, max=1024, help="How many samples readers are compared over.")] = 24,
    python: Pythons = None,
    as_json: Json = False,
) -> None:
    """Decode every sample and name the unreadable ones; or, with --readers, compare what frameworks read.

    Readers are compared over a few samples with the plain source's, of the files and of every record format.
    Differences are in levels of 0 to 255 for photographs, in standard deviations for arrays. Exit code 1 when a sample
    cannot be read or a reader delivers something else.
    """
    from stagebench.suite.data.reader_check import Check

    settings, source, knobs = interpreters_from(python or []), source_of(data), knobs_from(knob or [])
    if not readers:
        if adapter or workload or python or device or knobs:
            raise RequestError("--adapter, --workload, --python, --device and --knob choose readers; add --readers")
        bad = _decoded(source, as_json)
    else:
        named = _reading(adapter or [])
        with scratch() as folder:
            comparison = Check(source, workload_for(data, workload), samples, folder, device or "", knobs)
            bad = _compared(comparison, named, bool(adapter), settings, as_json)
    if bad:
        raise typer.Exit(1)


def _decoded(source: Path, as_json: bool) -> bool:
    from stagebench.suite.data.sets import kind_of
    from stagebench.suite.worker.image_folder import left_out_words

    kind, left_out = kind_of(source), list[str]()
    what = {"folder": "images", "arrays": "samples", "text": "tokens"}[kind]
    if kind == "folder":
        total, readable, bad, left_out = _images(source)
    else:
        total, readable, bad = _in_memory(source)
    if as_json:
        counts = {"path": str(source), "samples": total, "readable": readable}
        show_json({**counts, "problems": bad, "left_out": left_out})
        return bool(bad)
    for line in (*bad, f"{source}: {readable:,} of {total:,} {what} can be read"):
        say(line)
    if left_out:
        say(left_out_words(left_out))
    return bool(bad)


def _images(folder: Path) -> tuple[int, int, list[str], list[str]]:
    from stagebench.suite.data.decode import blank, lone_class, problems
    from stagebench.suite.worker.image_folder import listed

    try:
        files, classes, left_out = listed(str(folder))
    except NotADirectoryError:
        raise RequestError(f"{folder} is no image folder and no .npz file; name one") from None
    except OSError as error:
        place = error.filename or folder
        raise RequestError(f"{place} cannot be read: {error.strerror or error}; make it readable") from error
    except ValueError as error:
        raise RequestError(str(error)) from error
    lone, paths = lone_class(folder, classes), [Path(path) for path, _ in files]
    bad: list[str] = []
    with bar("decoding", len(paths)) as progress:
        for number, problem in enumerate(problems(paths), 1):
            progress(number)
            bad += [problem] if problem else []
    readable = len(paths) - len(bad)
    if blank(paths):
        bad.append(
            f"{folder}: each image has the same value in every pixel, so a network learns nothing from it; replace them"
        )
    return len(paths), readable, [lone, *bad] if lone else bad, left_out


def _in_memory(path: Path) -> tuple[int, int, list[str]]:
    from stagebench.suite.data.sets import count

    try:
        samples = count(path)
    except ValueError as error:
        return 0, 0, [str(error)]
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror or error}; make it readable") from error
    return samples, samples, []


def _reading(asked: list[str]) -> list[Adapter]:
    """Return the adapters that read data, of those asked for or of all."""
    known = adapters()
    reading = [known[name] for name in chosen("adapter", asked, known) if known[name].capabilities.real_data]
    if not reading:
        raise RequestError(f"{', '.join(asked)} reads no data but 'synthetic'; name another adapter")
    return reading


def _compared(
    comparison: "Check", reading: list[Adapter], asked: bool, settings: dict[str, str], as_json: bool
) -> bool:
    rows: list[Row] = []
    refusals = {adapter.name: found for adapter in reading if (found := comparison.refusal(adapter))}
    if refusals and (asked or len(refusals) == len(reading)):
        raise RequestError("; ".join(dict.fromkeys(refusals.values())))
    for name, refused in refusals.items():
        say(f"{name} is skipped: {refused}", err=True)
    for adapter in (adapter for adapter in reading if adapter.name not in refusals):
        interpreter = interpreter_for(adapter, settings, asked=asked)
        for read in comparison.readers(adapter, interpreter) if interpreter else ():
            rows.append(read.row)
            say(f"{read.adapter} {read.format}: {_verdict(read.row)}", err=True)
    if not rows:
        raise Unavailable("no framework is ready whose readers could be compared; see stagebench doctor")
    if as_json:
        show_json(rows)
    else:
        figures = ({"mean": f"{row['mean']:.3g}", "most": f"{row['most']:.3g}"} for row in rows)
        cells = [{**row, **more, "verdict": _verdict(row)} for row, more in zip(rows, figures, strict=True)]
        show_rows(cells, COLUMNS)
    return any(row["problem"] for row in rows)


def _verdict(row: dict[str, Any]) -> str:
    return f"unavailable: {row['unavailable']}" if row["unavailable"] else row["problem"] or "ok"


@group.command()
def convert(
    data: DataSet,
    to: Annotated[
        list[str] | None, typer.Option(help="Record format (repeatable) (default: all that hold it).")
    ] = None,
    workload: Taker = None,
    resize: Annotated[int, typer.Option(min=0, help="Scale photographs' shorter side to this; 0: as they are.")] = 0,
    on_error: Annotated[str, typer.Option(help="`fail`, or `skip`: leave unreadable images out, by name.")] = "fail",
    python: Pythons = None,
) -> None:
    """Pack a data set in the record formats of the frameworks' own readers; continues where it was interrupted.

    Each format is written by its own framework, whose environment must be there (`stagebench list formats`).
    """
    from stagebench.suite.data.pack import Packing, pack
    from stagebench.suite.data.sets import SETS, count, kind_of
    from stagebench.suite.worker.image_folder import left_out_words, listed

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
        packing = Packing(data if data in SETS else str(source), source, adapter, form, network, resize, on_error)
        with scratch() as folder, bar(f"packing {form.name}", count(source)) as progress:
            try:
                marker = pack(packing, interpreter, folder, progress)
            except KeyboardInterrupt:
                raise Interrupted(f"interrupted; the same command continues {packing.place}") from None
        _show_packed(packing.place, marker)
        packed += 1
    if not packed:
        raise Unavailable("nothing was packed: no framework is ready that writes records; see stagebench doctor")


def _check_resize(resize: int, source: Path, network: Workload) -> None:
    from stagebench.suite.data.sets import kind_of

    least = network.preprocessing.resize
    if resize and kind_of(source) != "folder":
        raise RequestError(f"--resize {resize} scales photographs, {source} holds none; leave it out")
    if 0 < resize < least:
        raise RequestError(f"--resize {resize} is less than networks are shown ({least} pixels); give {least} or more")


def _formats(source: Path, asked: list[str]) -> list[tuple[Adapter, Format]]:
    """Return the formats asked for, or all, each with its adapter; RequestError if none can hold the data set."""
    from stagebench.suite.data.sets import kind_of

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
    left, parts = marker.skipped, counted(len(marker.parts), "part")
    say(f"{place}: {marker.samples:,} samples in {parts}, by {marker.adapter}")
    for name in left.which:
        say(f"  skipped: {name}")
    if left.samples > len(left.which):
        say(f"  and {left.samples - len(left.which):,} more")


def source_of(data: str) -> Path:
    """Return the path of a data set, given by its name or its path; RequestError with the remedy if it is missing."""
    from stagebench.suite.data.sets import SETS, made
    from stagebench.suite.worker.image_folder import refuse_odd_name

    if data in SETS:
        made_at = made(data)
        if made_at is None:
            raise RequestError(f"the data set {data!r} is not there or not complete; get it: {SETS[data].remedy}")
        return made_at
    path = expanded(data).absolute()
    if not stands(path):
        raise RequestError(f"there is no data set {shown(data)}, no such file or folder ({path}); {known(data, SETS)}")
    try:
        refuse_odd_name(str(path))
    except ValueError as error:
        raise RequestError(str(error)) from error
    return path


def workload_for(data: str, asked: str | None) -> Workload:
    """Return the workload asked for, or the smallest that takes the data set; RequestError if none does."""
    from stagebench.suite.data.compatibility import fit

    refused, names = [], chosen("workload", [] if asked is None else [asked], workloads())
    for workload in sorted(
        (workloads()[name] for name in names), key=lambda workload: workload.graph().parameter_count
    ):
        fitting = fit(data, workload.dataset, workload.graph(), Path.cwd())
        if fitting.outcome is None:
            return workload
        refused.append(fitting.reason)
    raise RequestError(f"no workload takes {data!r}: {'; '.join(dict.fromkeys(refused))}; name another data set")


def interpreter_for(adapter: Adapter, settings: dict[str, str], asked: bool) -> "Interpreter | None":
    """Return an adapter's interpreter; None, with a line on stderr, if it has none and was not `asked` for."""
    from stagebench.suite.processes.interpreters import find

    try:
        return find(adapter, settings)
    except Unavailable as error:
        if asked:
            raise
        say(f"{adapter.name} is skipped: {error}", err=True)
        return None


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Draw a bar if stderr is a terminal; yields a function that takes the number done so far."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
