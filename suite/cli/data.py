"""`stagebench data`: make and list data sets; `check` and `convert` have files of their own."""

import re
from pathlib import Path
from typing import Annotated

import typer

from suite.cli import check, convert
from suite.cli.chosen import bar
from suite.cli.say import say
from suite.cli.tables import Row, show
from suite.errors import Interrupted, RequestError

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make, list, check and convert data sets.")
make = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make a data set from what scikit-learn ships.")
group.add_typer(make, name="make")
check.register(group)
convert.register(group)


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
    wanted = Photographs(folder, classes, images, width, height, seed)
    try:
        written = 0
        with bar("making images", classes * images) as progress:
            for number, path in enumerate(photographs(wanted), 1):
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
    """The data sets known by name: made or not, and where."""
    show(sets(), ("name", "made", "path", "help", "remedy"), as_json=as_json)


def sets() -> list[Row]:
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
