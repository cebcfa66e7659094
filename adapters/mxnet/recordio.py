"""Image files packed as RecordIO, as MXNet's im2rec packs them.

ImageRecordIter ends the process where an image is broken: what is packed has been decoded by it.
"""

import shutil
from io import BytesIO
from typing import Iterator, List

import mxnet as mx
from mxnet import recordio

from adapters.mxnet.record_files import in_folder, offsets
from suite.worker import jpeg
from suite.worker.packed_set import Record


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
            for number, begin in offsets(part):
                index.write("%s\t%d\n" % (number, begin + done))
            with open(part.records, "rb") as content:
                shutil.copyfileobj(content, records, 1 << 20)
            done = records.tell()


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
