"""Image files packed as RecordIO, as MXNet's im2rec packs them: an .rec, and an .idx that says where each begins.

ImageRecordIter ends the process where a record or an image is broken: what is packed has
been decoded by it, and the files are looked at before they are read.
"""

import os
import shutil
import struct
from io import BytesIO
from typing import Iterator, List, NamedTuple

import mxnet as mx
from mxnet import recordio

from suite.worker import jpeg
from suite.worker.packed_set import Record, RecordSource

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


def pack(samples: Iterator[Record], folder: str) -> None:
    """One part: each image's own bytes, its label, its number."""
    files = in_folder(folder)
    writer = recordio.MXIndexedRecordIO(files.offsets, files.records, "w")
    try:
        for sample in samples:
            header = recordio.IRHeader(0, float(sample.label), sample.number, 0)
            writer.write_idx(sample.number, recordio.pack(header, readable(sample.encoded or b"")))
    finally:
        writer.close()


def join(parts: List[str], folder: str) -> None:
    """Parts behind each other: a record ends at a multiple of four bytes, and the next may begin there."""
    if len(parts) == 1:
        return
    joined, done = in_folder(folder), 0
    with open(joined.records, "wb") as records, open(joined.offsets, "w") as index:
        for part in map(in_folder, parts):
            with open(part.offsets) as lines:
                for line in lines:
                    number, begin = line.split()
                    index.write("%s\t%d\n" % (number, int(begin) + done))
            with open(part.records, "rb") as content:
                shutil.copyfileobj(content, records, 1 << 20)
            done = records.tell()


def check(files: Files) -> None:
    """OSError where the records do not lie as their index says, as in a file that was cut off."""
    size = os.path.getsize(files.records)
    with open(files.offsets) as lines:
        begins = sorted(int(line.split()[1]) for line in lines)
    step = max(1, len(begins) // LOOKED_AT)
    with open(files.records, "rb") as records:
        for begin, end in list(zip(begins, begins[1:] + [size]))[::-step]:
            records.seek(begin)
            magic, length = struct.unpack("<II", records.read(8).ljust(8, b"\0"))
            whole = length <= LENGTH  # else it is stored in parts
            if magic != MAGIC or (whole and begin + 8 + (length + 3) // 4 * 4 != end):
                raise OSError("cannot read %s: no record at byte %d; pack the set again" % (files.records, begin))


def readable(encoded: bytes) -> bytes:
    """An image's bytes as they are, without Exif; anew, without loss, where OpenCV cannot decode what Pillow can."""
    encoded = jpeg.without_exif(encoded)
    try:
        mx.image.imdecode(encoded, flag=1).wait_to_read()
    except mx.base.MXNetError:
        from PIL import Image

        written = BytesIO()
        Image.open(BytesIO(encoded)).convert("RGB").save(written, "PNG")
        return written.getvalue()
    return encoded
