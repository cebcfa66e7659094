"""RecordIO's files, an .rec and an .idx with each record's offset; this file needs no MXNet.

ImageRecordIter ends the process at a broken record, so the files are checked before they are read.
"""

import os
import shutil
import struct
from typing import List, NamedTuple, Tuple

from stagebench.suite.worker.packed_set import RecordSource

FORM, NAME = "recordio", "images"
MAGIC, LENGTH = 0xCED7230A, (1 << 29) - 1  # a record's first four bytes; the bits of the next four that are its length
CHECKED = 1000  # records of a set, the last among them


class Files(NamedTuple):
    """The files of a packed set, or of a part of it."""

    records: str
    offsets: str


def in_folder(folder: str) -> Files:
    return Files(os.path.join(folder, f"{NAME}.rec"), os.path.join(folder, f"{NAME}.idx"))


def files_of(source: RecordSource) -> Files:
    """Return the files for ImageRecordIter; a set of one part is not joined."""
    return in_folder(source.joined if os.path.isdir(source.joined) else source.parts[0])


def offsets(files: Files) -> List[Tuple[str, int]]:
    """Return (number, offset) of every record; OSError for a broken index."""
    try:
        with open(files.offsets) as lines:
            return [(number, int(begin)) for number, begin in map(str.split, lines)]
    except ValueError as error:
        raise OSError(f"cannot read {files.offsets}: {error}; pack the set again")


def check(files: Files) -> None:
    """Raise OSError if the records are not where the index has them, as in a truncated file."""
    if not os.path.isfile(files.records):
        raise OSError(f"{files.records} is missing; pack the set again")
    size = os.path.getsize(files.records)
    begins = sorted(begin for _, begin in offsets(files))
    step = max(1, len(begins) // CHECKED)
    with open(files.records, "rb") as records:
        for begin, end in list(zip(begins, begins[1:] + [size]))[::-step]:
            records.seek(begin)
            magic, length = struct.unpack("<II", records.read(8).ljust(8, b"\0"))
            whole = length <= LENGTH  # else it is stored in parts
            if magic != MAGIC or (whole and begin + 8 + (length + 3) // 4 * 4 != end):
                raise OSError(f"cannot read {files.records}: no record at byte {begin}; pack the set again")


def join(parts: List[str], folder: str) -> None:
    """Concatenate the parts: every record ends at a multiple of four bytes."""
    if len(parts) == 1:
        return
    joined, done = in_folder(folder), 0
    with open(joined.records, "wb") as records, open(joined.offsets, "w") as index:
        for part in map(in_folder, parts):
            for number, begin in offsets(part):
                index.write(f"{number}\t{begin + done}\n")
            with open(part.records, "rb") as content:
                shutil.copyfileobj(content, records, 1 << 20)
            done = records.tell()
