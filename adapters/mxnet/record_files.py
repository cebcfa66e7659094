"""Where RecordIO's records lie: an .rec, and an .idx that says where each begins; neither needs MXNet to be looked at.

ImageRecordIter ends the process where a record is broken: the files are looked at before they are read.
"""

import os
import struct
from typing import List, NamedTuple, Tuple

from suite.worker.packed_set import RecordSource

FORM, NAME = "recordio", "images"
MAGIC, LENGTH = 0xCED7230A, (1 << 29) - 1  # a record's first four bytes; of the next four, what is its length
LOOKED_AT = 1000  # records of a set, its last among them


class Files(NamedTuple):
    """One packed set, or a part of it."""

    records: str
    offsets: str


def in_folder(folder: str) -> Files:
    return Files(os.path.join(folder, NAME + ".rec"), os.path.join(folder, NAME + ".idx"))


def files_of(source: RecordSource) -> Files:
    """What ImageRecordIter takes; a set of one part is not joined."""
    return in_folder(source.joined if os.path.isdir(source.joined) else source.parts[0])


def offsets(files: Files) -> List[Tuple[str, int]]:
    """(number, where it begins) of every record; OSError for an index that says something else."""
    try:
        with open(files.offsets) as lines:
            return [(number, int(begin)) for number, begin in map(str.split, lines)]
    except ValueError as error:
        raise OSError("cannot read %s: %s; pack the set again" % (files.offsets, error))


def check(files: Files) -> None:
    """OSError where the records do not lie as their index says, as in a file that was cut off."""
    if not os.path.isfile(files.records):
        raise OSError("%s is missing; pack the set again" % files.records)
    size = os.path.getsize(files.records)
    begins = sorted(begin for _, begin in offsets(files))
    step = max(1, len(begins) // LOOKED_AT)
    with open(files.records, "rb") as records:
        for begin, end in list(zip(begins, begins[1:] + [size]))[::-step]:
            records.seek(begin)
            magic, length = struct.unpack("<II", records.read(8).ljust(8, b"\0"))
            whole = length <= LENGTH  # else it is stored in parts
            if magic != MAGIC or (whole and begin + 8 + (length + 3) // 4 * 4 != end):
                raise OSError("cannot read %s: no record at byte %d; pack the set again" % (files.records, begin))
