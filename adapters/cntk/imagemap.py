"""Image folders for CNTK's image reader: its map file, a line "path<tab>class" for each image. No pixel is copied.

A second file holds the images' lengths, by which a later truncation is noticed (in a large set a sample of the files
is checked): CNTK's decoder fills the missing part of a JPEG with grey. An image that CNTK would read differently from
other frameworks is converted, to a file in the set. This file needs no CNTK.
"""

import os
from io import BytesIO
from typing import Any, Iterable, Iterator, List, NamedTuple, Tuple

from stagebench.suite.worker import photographs
from stagebench.suite.worker.packed_set import Record, RecordSource

FORM = "imagemap"
CHECKED = 1000  # images of a set
UPRIGHT = (0, 1)  # Exif's orientations without a rotation
ORIENTATION = 0x0112
SIGNS = "\t\r\n@"  # of the map file; behind an @ CNTK looks for an image in an archive
CURED = "stagebench data convert packs it again once its folder is removed"


class Files(NamedTuple):
    """The files of a set, or of a part of it."""

    images: str
    lengths: str


def in_folder(folder: str) -> Files:
    return Files(os.path.join(folder, "images.map"), os.path.join(folder, "images.bytes"))


class MappedImages(RecordSource):
    """A packed set whose files include the images, which a page cache holds."""

    def __init__(self, records: RecordSource) -> None:
        super().__init__(records.path, records.how)
        self.input_shape = records.input_shape

    def paths(self) -> List[str]:
        return super().paths() + [path for path, _ in listed(self.joined)]


def write(samples: Iterable[Record], folder: str) -> None:
    """Write one part; converted images lie in the part, and their paths are relative to it."""
    files = in_folder(folder)
    with opened(files.images) as images, opened(files.lengths) as lengths:
        for sample in samples:
            path, encoded = sample.path, sample.encoded or b""
            if not path or set(path) & set(SIGNS) or turned(encoded):
                path, encoded = own(sample.number, encoded, folder)
            images.write(f"{path}\t{sample.label}\n")
            lengths.write(f"{len(encoded)}\n")


def join(parts: List[str], folder: str) -> None:
    joined = in_folder(folder)
    with opened(joined.images) as images, opened(joined.lengths) as lengths:
        for part in parts:
            for path, label in listed(part):
                whole = os.path.abspath(os.path.join(part, path))
                if set(whole) & set(SIGNS):
                    raise ValueError(f"CNTK takes @ in {whole} for a sign of its own; move the data home")
                images.write(f"{whole}\t{label}\n")
            with open(in_folder(part).lengths) as text:
                lengths.write(text.read())


def check(folder: str) -> None:
    """OSError names an image that is not there or not the one that was packed; looks at some of many."""
    files = in_folder(folder)
    try:
        with open(files.lengths) as text:
            lengths = [int(line) for line in text]
    except ValueError as error:
        raise OSError(f"cannot read {files.lengths}: {error}; {CURED}")
    paths = [path for path, _ in listed(folder)]
    if len(paths) != len(lengths):
        counted = (files.images, len(paths), files.lengths, len(lengths), CURED)
        raise OSError("cannot read %s: it names %d images and %s %d; %s" % counted)
    for index in range(0, len(paths), max(1, len(paths) // CHECKED)):
        try:
            found = os.path.getsize(paths[index])
        except OSError as error:
            place = (paths[index], error.strerror, files.images, CURED)
            raise OSError("cannot read the image %s: %s, and %s names it; %s" % place)
        if found != lengths[index]:
            raise OSError(
                f"cannot read the image {paths[index]}: it has changed since it was packed ({files.lengths} has "
                f"{lengths[index]} bytes, it is {found}); {CURED}"
            )


def listed(folder: str) -> Iterator[Tuple[str, str]]:
    with opened(in_folder(folder).images, "r") as stream:
        for line in stream:
            path, _, label = line.rstrip("\n").partition("\t")
            yield path, label


def opened(path: str, mode: str = "w") -> Any:
    """A text file of paths: whatever bytes a file's name has come through."""
    return open(path, mode, encoding="utf-8", errors="surrogateescape", newline="\n")


def turned(encoded: bytes) -> bool:
    """Return whether Exif turns an image, as only OpenCV does; damaged Exif counts as if it did."""
    from PIL import Image

    if photographs.without_exif(encoded) == encoded:
        return False
    try:
        with Image.open(BytesIO(encoded)) as image:
            return image.getexif().get(ORIENTATION, 1) not in UPRIGHT
    except Exception:  # Pillow's parser of Exif raises what it likes
        return True


def own(number: int, encoded: bytes, folder: str) -> Tuple[str, bytes]:
    """(name, content) of an image written into a part, without its Exif."""
    plain = photographs.without_exif(encoded)
    name = f"{number:08d}.{'jpg' if plain[:2] == photographs.BEGIN else 'png'}"
    with open(os.path.join(folder, name), "wb") as stream:
        stream.write(plain)
    return name, plain
