"""A folder of images in class folders (ImageNet's layout): the one rule for its classes and its images.

One level is read. Names that programs and systems leave in folders, and folders without any file, are neither classes
nor images: they are skipped, and `Images.left_out` names them.
"""

import os
from typing import Iterator, List, NamedTuple, Optional, Tuple

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
# Of images in formats that `stagebench.suite.worker.photographs` does not read; they are left out by name.
OTHER_SUFFIXES = (".avif", ".heic", ".heif", ".jp2", ".jxl", ".ppm", ".pgm", ".ico", ".tga", ".psd", ".svg", ".dng")
# In lower case, in addition to every name that begins with a dot.
SYSTEM_NAMES = (
    "$recycle.bin",
    "#recycle",
    "#snapshot",
    "@eadir",
    "@recently-snapshot",
    "@recycle",
    "__macosx",
    "__pycache__",
    "desktop.ini",
    "ehthumbs.db",
    "ehthumbs_vista.db",
    "lost+found",
    "network trash folder",
    "system volume information",
    "temporary items",
    "thumbs.db",
    "~snapshot",
)
SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing")  # parts of a set, the first ones first
DEEP, MANY, WIDE = 5, 200, 20  # levels and folders that are searched for the folder that was meant
NAMED = 3  # names that a message lists, and folders that a guess looks into


class Images(NamedTuple):
    """The content of a folder of images."""

    files: List[Tuple[str, int]]  # (path, label), by class and name
    classes: List[str]  # sorted; a label is an index into it
    left_out: List[str]  # paths in the folder that are neither classes nor images; folders end with a slash


def left_out_words(names: List[str]) -> str:
    """Return a sentence without its full stop; "" if nothing was left out."""
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    kinds = "neither a class nor an image" if len(names) == 1 else "neither classes nor images"
    return f"left out {len(names)}, {kinds}: {', '.join(names[:NAMED])}{more}"


def of_a_system(name: str) -> bool:
    """Return whether programs or systems, not a person, leave this name in folders."""
    return name.startswith(".") or name.strip().lower() in SYSTEM_NAMES


def escaped(name: str) -> str:
    """Return a file's name as text on one line: bytes that are no UTF-8 and control characters as their codes."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def listed(path: str) -> Images:
    """Return the classes and images of a folder; ValueError for another layout names the folder to give."""
    names = sorted(os.listdir(path))
    for name in names:
        if not of_a_system(name):
            _refuse_lost(f"{path}/{name}")
    folders = [name for name in names if os.path.isdir(f"{path}/{name}")]
    left_out = [f"{name}/" for name in folders if of_a_system(name)]
    left_out += [
        name for name in names if name.lower().endswith(IMAGE_SUFFIXES + OTHER_SUFFIXES) and name not in folders
    ]
    files: List[Tuple[str, int]] = []
    classes: List[str] = []
    for name in folders:
        folder = f"{path}/{name}"
        images = [] if of_a_system(name) else _images(folder, left_out)
        if images:
            files.extend((image, len(classes)) for image in images)
            classes.append(name)
        elif not of_a_system(name):
            if _has_files(folder):
                raise ValueError(escaped(_another_layout(path, name)))
            left_out.append(f"{name}/")
    if not classes or set(map(str.lower, classes)) <= set(SPLITS):
        raise ValueError(escaped(_another_layout(path, None)))
    return Images(files, classes, list(map(escaped, left_out)))


def _images(folder: str, left_out: List[str]) -> List[str]:
    """Return the images of a class, sorted; add what looks like others to `left_out`."""
    refuse_odd_name(folder)
    images = []
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if _is_image(entry.name) and not of_a_system(entry.name):
            refuse_odd_name(entry.path)
            _refuse_pipe(entry)
            images.append(entry.path)
        elif entry.name.lower().endswith(IMAGE_SUFFIXES + OTHER_SUFFIXES):
            left_out.append(f"{os.path.basename(folder)}/{entry.name}")
    return images


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def refuse_odd_name(path: str) -> None:
    """Raise ValueError for a name that is no UTF-8 text: records and some frameworks cannot hold it."""
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"the name of {escaped(path)} is no UTF-8 text; rename it (convmv renames many)")


def _refuse_lost(path: str) -> None:
    """Raise ValueError for a link to nothing, perhaps a class on a lost disk: labels would shift; or to its folder."""
    try:
        of_the_set = os.path.samefile(path, os.path.dirname(path))
    except OSError as error:
        raise ValueError(
            f"{escaped(path)}: {error.strerror}; fix the link or its permissions, or move it out of the set"
        )
    if of_the_set:
        raise ValueError(f"{escaped(path)} is a link to the set itself; move it out of the set")


def _refuse_pipe(entry: "os.DirEntry[str]") -> None:
    """Raise ValueError for an entry that is no file: reading from a pipe would never end."""
    try:
        odd = not entry.is_file() and os.path.exists(entry.path)
    except OSError as error:  # links in a circle
        raise ValueError(f"{escaped(entry.path)}: {error.strerror}; move it out of the set")
    if odd:
        raise ValueError(f"{escaped(entry.path)} is no file; move it out of the set")


def _another_layout(path: str, name: Optional[str]) -> str:
    """Return why this folder is no set, and the folder to give.

    `name` is a folder in it that holds files, but no images.
    """
    rule = f"one level of folders is read, one folder of images ({', '.join(IMAGE_SUFFIXES)}) per class"
    problem = "%s %s; %s" % (path, "has no class folders" if name is None else f"has no images in {name}", rule)
    below = list(_below(path))
    meant = [folder for folder in below if folder != path and _is_set(folder)]
    above = os.path.dirname(os.path.abspath(path))
    if not meant and name is None and _has_images(path) and _is_set(above):
        meant = [above]
    if meant:
        return f"{problem}: give {meant[0]}"
    parts = [part for part in _folders(path) if _has_images(f"{path}/{part}")]
    if parts and set(map(str.lower, parts)) <= set(SPLITS):
        problem = f"{path}: {' and '.join(parts)} are parts of a set, not classes; {rule}"
        return f"{problem}: sort the images of each part into such folders, and give one part"
    if name is None:
        return problem + f": {'sort its images into' if _has_images(path) else 'give one with'} such folders"
    folder = f"{path}/{name}"
    tops = [each for each in _folders(path) if each.lower() in SPLITS] if name.lower() in SPLITS else [name]
    inside = [each for top in sorted(tops, key=_by_split) for each in _below(f"{path}/{top}")]
    deep = [os.path.relpath(each, path) for each in inside if _has_images(each)]
    if deep:
        problem += f"; its images lie deeper, in {deep[0]}"
        return f"{problem}: move or link the images of each class into its own folder"
    other = {os.path.splitext(each)[1].lower() for each in os.listdir(folder)}.intersection(OTHER_SUFFIXES)
    if other:
        return problem + f", not {', '.join(sorted(other))}: save its images in one of these formats"
    return f"{problem}: put its images into it, or move it out of the set"


def _below(path: str) -> Iterator[str]:
    """Yield `path` and folders below it, level by level, folders called train first.

    DEEP levels are visited at most, MANY folders in all, and WIDE ones in each.
    """
    level, count = [path], 0
    for _ in range(DEEP):
        following: List[str] = []
        for folder in level:
            count += 1
            if count > MANY:
                return
            yield folder
            following += [f"{folder}/{name}" for name in sorted(_folders(folder), key=_by_split)[:WIDE]]
        level = following


def _by_split(name: str) -> int:
    return SPLITS.index(name.lower()) if name.lower() in SPLITS else len(SPLITS)


def _is_set(path: str) -> bool:
    """Return whether the first folders, two at least, hold images and are not just the parts of a set."""
    first = _folders(path)[:NAMED]
    images = all(_has_images(f"{path}/{name}") for name in first)
    return len(first) > 1 and images and not set(map(str.lower, first)) <= set(SPLITS)


def _folders(path: str) -> List[str]:
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return []
    return [name for name in names if not of_a_system(name) and os.path.isdir(f"{path}/{name}")]


def _has_files(path: str) -> bool:
    """Return whether a person has left a file somewhere below a folder."""
    for _, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not of_a_system(name)]
        if not all(map(of_a_system, names)):
            return True
    return False


def _has_images(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(_is_image(entry.name) and not of_a_system(entry.name) for entry in entries)
    except OSError:
        return False
