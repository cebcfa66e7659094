"""Images decoded one by one, to find the unreadable ones before a training does."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from suite.worker.image_folder import listed
from suite.worker.photographs import Within, refuse_huge

UNREADABLE = (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError)


def header(path: Path) -> tuple[int, int]:
    """Return (width, height) from the file's header; OSError names an unreadable file."""
    try:
        with Within(path) as stream, Image.open(stream) as image:
            return image.size
    except UNREADABLE as error:
        raise OSError(_sentence(path, error)) from error


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
            with Within(path) as stream, Image.open(stream) as image:
                refuse_huge(image, path.stat().st_size)
                image.convert("RGB")
        except UNREADABLE as error:
            yield _sentence(path, error)
        else:
            yield None


def blank(paths: list[Path]) -> bool:
    """True if each image has one value in all of its pixels, so that nothing can be learnt."""
    return all(map(_flat, paths))


def _flat(path: Path) -> bool:
    try:
        with Within(path) as stream, Image.open(stream) as image:
            refuse_huge(image, path.stat().st_size)
            return image.convert("RGB").getcolors(1) is not None  # None: two colours or more
    except UNREADABLE:
        return False


def _sentence(path: Path, error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        why = "not an image that Pillow knows"
    else:
        why = getattr(error, "strerror", None) or str(error)
    return f"cannot read the image {path}: {why}; replace it, or move it out of the set"
