"""`stagebench data check`: can every sample be read, and do all readers deliver the same ones?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suite.cli.options import bar, interpreter_for, interpreters_from, knobs_from, source_of, workload_for
from suite.cli.output import Row, say, show_json, show_rows
from suite.errors import RequestError, Unavailable

if TYPE_CHECKING:
    from suite.contracts.adapter import Adapter
    from suite.data.reader_check import Check

COLUMNS = ("adapter", "format", "reader", "samples", "mean", "most", "bound", "verdict")


def check(
    data: Annotated[str, typer.Argument(help="A data set's name, an image folder or an array file.")],
    readers: Annotated[bool, typer.Option("--readers", help="Compare what every framework's readers deliver.")] = False,
    adapter: Annotated[list[str] | None, typer.Option(help="Only this adapter's readers (repeatable).")] = None,
    workload: Annotated[
        str | None, typer.Option(help="Whose input it becomes (default: the smallest that takes it).")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="What readers read for: `cpu` or `cuda` (default: each adapter's first).")
    ] = None,
    knob: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of the adapters that have it (repeatable).")
    ] = None,
    samples: Annotated[int, typer.Option(min=8, max=1024, help="How many samples readers are compared over.")] = 24,
    python: Annotated[list[str] | None, typer.Option(help="NAME=PATH: an adapter's interpreter.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Decode every sample and name the unreadable ones; or, with --readers, compare what frameworks read.

    Readers are compared over a few samples with the plain source's, of the files and of every record format.
    Differences are in levels of 0 to 255 for photographs, in standard deviations for arrays. Exit code 1 when a sample
    cannot be read or a reader delivers something else.
    """
    from suite.data.reader_check import Check
    from suite.files import scratch

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
    from suite.data.sets import kind_of
    from suite.worker.image_folder import left_out_words

    left_out: list[str] = []
    if kind_of(source) == "folder":
        total, readable, bad, left_out = _images(source)
    else:
        total, readable, bad = _arrays(source)
    if as_json:
        counts = {"path": str(source), "samples": total, "readable": readable}
        show_json({**counts, "problems": bad, "left_out": left_out})
    else:
        for problem in bad:
            say(problem)
        what = "images" if kind_of(source) == "folder" else "samples"
        say(f"{source}: {readable:,} of {total:,} {what} can be read")
        if left_out:
            say(left_out_words(left_out))
    return bool(bad)


def _images(folder: Path) -> tuple[int, int, list[str], list[str]]:
    from suite.data.decode import blank, lone_class, problems
    from suite.worker.image_folder import listed

    try:
        files, classes, left_out = listed(str(folder))
    except (OSError, ValueError) as error:
        raise RequestError(f"no image folder and no .npz file: {error}") from error
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


def _arrays(path: Path) -> tuple[int, int, list[str]]:
    from suite.worker.array_files import loaded

    try:
        count = len(loaded(str(path))[1])
    except ValueError as error:
        return 0, 0, [str(error)]
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror or error}; make it readable") from error
    return count, count, []


def _reading(asked: list[str]) -> "list[Adapter]":
    """Return the adapters that read data, of those asked for or of all."""
    from suite.plugins import adapters
    from suite.text import chosen

    known = adapters()
    reading = [known[name] for name in chosen("adapter", asked, known) if known[name].capabilities.real_data]
    if not reading:
        raise RequestError(f"{', '.join(asked)} reads no data but 'synthetic'; name another adapter")
    return reading


def _compared(
    comparison: "Check", reading: "list[Adapter]", asked: bool, settings: dict[str, str], as_json: bool
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
        show_rows([_cells(row) for row in rows], COLUMNS)
    return any(row["problem"] for row in rows)


def _cells(row: dict[str, Any]) -> Row:
    return {**row, "mean": f"{row['mean']:.3g}", "most": f"{row['most']:.3g}", "verdict": _verdict(row)}


def _verdict(row: dict[str, Any]) -> str:
    return f"unavailable: {row['unavailable']}" if row["unavailable"] else row["problem"] or "ok"
