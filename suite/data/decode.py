"""Images decoded one by one, to find the unreadable ones before a training does."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from stagebench.suite.worker.image_folder import listed
from stagebench.suite.worker.photographs import in_rgb, naming, opened_image


def header(path: Path) -> tuple[int, int]:
    """Return (width, height) from the file's header; OSError names an unreadable file."""
    with naming(str(path)), opened_image(path) as image:
        size: tuple[int, int] = image.size
        return size


def images(folder: Path) -> list[Path]:
    """Return every image of a class-folder tree; ValueError or OSError names a missing part."""
    return [Path(path) for path, _ in listed(str(folder)).files]


def lone_class(folder: Path, classes: Sequence[str]) -> str | None:
    """Return the problem of a tree with a single class folder, where every answer is right; None without one."""
    if len(classes) > 1:
        return None
    return f"{folder} has one class, {classes[0]}; a network learns to tell classes apart: add a folder for another one"


def problems(paths: list[Path]) -> Iterator[str | None]:
    """Yield for each image None, or why it cannot be decoded."""
    for path in paths:
        try:
            with naming(str(path)), opened_image(path) as image:
                in_rgb(image)
        except OSError as error:
            yield str(error)
        else:
            yield None


def blank(paths: list[Path]) -> bool:
    """True if each image has one value in all of its pixels, so that nothing can be learnt."""
    return all(map(_flat, paths))


def _flat(path: Path) -> bool:
    with suppress(OSError), naming(str(path)), opened_image(path) as image:
        return in_rgb(image).getcolors(1) is not None  # None: two colours or more
    return False
