"""Packing a data set in CNTK's text format (CTF) or its binary one (CBF); this file needs no CNTK.

A sample has two streams: `images`, its values in a row, and `labels`, the number of its class. Rows with a
one, as CNTK's examples have them, would be as wide as the network's outputs, which a data set does not know.

The binary format, version 1, little-endian; from CNTK's wiki ("CNTKBinary Reader") and what its reader takes:

    magic u64, version u32
    chunks, each: the samples of every sequence u32 (here always 1), then, for each stream, every
        sequence: its samples u32, their values
    header: magic u64, number of chunks u32, of streams u32; each stream: encoding u8 (0: dense),
        length of its name u32, its name, type u8 (0: float32), values of a sample u32
    a row per chunk: its offset i64, its sequences u32, its samples u32
    the header's offset i64
"""

import os
import shutil
import struct
from typing import BinaryIO, Iterable, Iterator, List, NamedTuple

import numpy as np

from stagebench.suite.worker.packed_set import Record

MAGIC = 0x636E746B5F62696E
BEGIN = struct.pack("<QI", MAGIC, 1)
HEADER, STREAM = struct.Struct("<QII"), struct.Struct("<BI6sBI")  # both streams' names have six letters
FIXED = HEADER.size + 2 * STREAM.size
ROW = np.dtype([("offset", "<i8"), ("sequences", "<u4"), ("samples", "<u4")])

# CNTK distributes whole chunks over the ranks: smaller chunks make more even shares. Larger ones than these are hardly
# read faster.
CHUNK_SAMPLES, CHUNK_BYTES = 4, 1 << 16
PIECE = 1 << 20


class Table(NamedTuple):
    """The table at the end of a file."""

    header: int  # its offset, after the last chunk
    values: int  # of an image
    rows: np.ndarray  # of ROW


def name_in(folder: str, form: str) -> str:
    """A part's file, or the joined one."""
    return os.path.join(folder, f"records.{form}")


def write(form: str, samples: Iterable[Record], folder: str) -> None:
    """Write one part; no file without samples, whose width would be unknown."""
    path = name_in(folder, form)
    with open(path, "wb") as stream:
        written = write_text(samples, stream) if form == "ctf" else write_binary(samples, stream)
    if not written:
        os.remove(path)


def join(form: str, parts: List[str], folder: str) -> None:
    """Join all parts to one file: neither deserializer takes several. A single part is linked, not copied."""
    paths = [path for path in (name_in(part, form) for part in parts) if os.path.exists(path)]
    joined = name_in(folder, form)
    if len(paths) > 1:
        with open(joined, "wb") as stream:
            (join_text if form == "ctf" else join_binary)(paths, stream)
    elif paths:
        try:
            os.link(paths[0], joined)
        except OSError:  # a file system without links
            shutil.copyfile(paths[0], joined)


def write_text(samples: Iterable[Record], stream: BinaryIO) -> int:
    """A line a sample, "|images 0.5 -1 ... |labels 3"; returns their number. Nine digits keep every float32."""
    written = 0
    for sample in samples:
        values = " ".join([f"{value:.9g}" for value in sample.image.ravel().tolist()])
        stream.write(f"|images {values} |labels {sample.label}\n".encode("ascii"))
        written += 1
    return written


def join_text(paths: List[str], stream: BinaryIO) -> None:
    for path in paths:
        with open(path, "rb") as part:
            shutil.copyfileobj(part, stream, 1 << 20)


def write_binary(samples: Iterable[Record], stream: BinaryIO) -> int:
    """A whole file; returns the number of samples."""
    rows, values = [], 0
    stream.write(BEGIN)
    for group in grouped(samples):
        images = np.stack([sample.image.ravel() for sample in group])
        labels = np.array([[sample.label] for sample in group])
        values = images.shape[1]
        rows.append((stream.tell(), len(group), len(group)))
        stream.write(np.ones(len(group), "<u4").tobytes() + sequences(images) + sequences(labels))
    end(stream, values, np.array(rows, ROW))
    return sum(row[1] for row in rows)


def join_binary(paths: List[str], stream: BinaryIO) -> None:
    """The chunks of all files one behind the other, and one table of all."""
    stream.write(BEGIN)
    tables = []
    for path in paths:
        with open(path, "rb") as part:
            table = table_of(part)
            part.seek(len(BEGIN))
            table.rows["offset"] += stream.tell() - len(BEGIN)
            for begin in range(len(BEGIN), table.header, PIECE):
                stream.write(part.read(min(PIECE, table.header - begin)))
        tables.append(table)
    end(stream, tables[0].values, np.concatenate([table.rows for table in tables]))


def grouped(samples: Iterable[Record]) -> Iterator[List[Record]]:
    """The samples of one chunk after the other."""
    group: List[Record] = []
    for sample in samples:
        group.append(sample)
        if len(group) == max(1, min(CHUNK_SAMPLES, CHUNK_BYTES // sample.image.nbytes)):
            yield group
            group = []
    if group:
        yield group


def sequences(values: np.ndarray) -> bytes:
    """A stream's part of a chunk: before each sample's values the number of samples in its sequence, 1."""
    rows = np.ones((len(values), values.shape[1] + 1), "<u4")
    rows[:, 1:] = values.astype("<f4").view("<u4")
    return rows.tobytes()


def end(stream: BinaryIO, values: int, rows: np.ndarray) -> None:
    """The header, the table, and where the header begins."""
    header = stream.tell()
    stream.write(HEADER.pack(MAGIC, len(rows), 2))
    for name, width in ((b"images", values), (b"labels", 1)):
        stream.write(STREAM.pack(0, len(name), name, 0, width))
    stream.write(rows.tobytes() + struct.pack("<q", header))


def table_of(stream: BinaryIO) -> Table:
    """A file's table; ValueError when it is not written by `write_binary` or `join_binary`, or not whole.

    CNTK trusts it: where the chunks are not as long as it says, the process dies.
    """
    size = stream.seek(0, os.SEEK_END)
    [header] = struct.unpack("<q", at(stream, size - 8, 8, size))
    magic, chunks, streams = HEADER.unpack(at(stream, header, HEADER.size, size))
    if (magic, streams) != (MAGIC, 2) or header + FIXED + chunks * ROW.itemsize + 8 != size:
        raise ValueError("its header is not that of two streams in CNTK's binary format")
    values = STREAM.unpack(at(stream, header + HEADER.size, STREAM.size, size))[-1]
    rows = np.frombuffer(at(stream, header + FIXED, chunks * ROW.itemsize, size), ROW).copy()
    ends = rows["offset"] + rows["samples"].astype(np.int64) * (4 + 4 + 4 * values + 4 + 4)
    if rows["offset"].tolist() + [header] != [len(BEGIN)] + ends.tolist():
        raise ValueError("its chunks do not lie where its table says; a part of it is missing")
    return Table(header, values, rows)


def at(stream: BinaryIO, place: int, length: int, size: int) -> bytes:
    """Read `length` bytes at an offset; ValueError if the file, of `size` bytes, is too short."""
    if not 0 <= place <= size - length:
        raise ValueError("it has no header where its last bytes say; it has probably been cut off")
    stream.seek(place)
    return stream.read(length)
