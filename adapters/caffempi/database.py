"""Data sets as LMDB, Caffe's database: packing them, and reading any sample of them.

A part is an environment of its own. Keys are sample numbers, eight bytes, the highest first, so that they
are sorted; values are Caffe's Datum: an image file's own bytes, or the pixels of an array. Pixels that
take at most 256 values, as those of 8-bit images do however they were normalised, are stored as bytes, and
the values under a key of their own: a quarter of the size, the same floats.

Oldest Python: 3.6.
"""

import os
import struct
import threading
from typing import Any, Dict, Iterator, List, Tuple

import lmdb
import numpy as np

from adapters.caffempi.datum import Datum, parsed
from suite.worker.photographs import Photographs
from suite.worker.records import Record, RecordSource
from suite.worker.sources import Source

KEY = struct.Struct(">Q")
VALUES = b"values"  # six bytes: no sample's key; a Datum whose floats are what the levels stand for
LEVELS = 256
AT_ONCE = 256  # samples of one transaction
FIRST_SIZE = 1 << 26  # bytes that an environment may grow to, doubled as it fills


class Writer:
    """One part in the making."""

    def __init__(self, folder: str) -> None:
        """An empty environment in a folder that exists."""
        self._environment = lmdb.open(folder, map_size=FIRST_SIZE, lock=False, sync=False, metasync=False)
        self._levels: Dict[float, int] = {}
        self._waiting: List[Tuple[bytes, bytes]] = []

    def add(self, sample: Record) -> None:
        """One more."""
        if sample.encoded is not None:
            datum = Datum(sample.label, (0, 0, 0), sample.encoded, (), True)
        else:
            levels = self._as_levels(sample.image)
            floats = () if len(levels) else sample.image.reshape(-1)
            datum = Datum(sample.label, sample.image.shape, levels, floats, False)
        self._waiting.append((KEY.pack(sample.number), datum.to_bytes()))
        if len(self._waiting) == AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Write what waits, and the values of the levels; all of it is on the disk then."""
        if self._levels:
            values = Datum(0, (0, 0, 0), b"", list(self._levels), False)
            self._waiting.append((VALUES, values.to_bytes()))
        self._flush()
        self._environment.sync(True)
        self._environment.close()

    def _as_levels(self, image: np.ndarray) -> bytes:
        """A byte a pixel; empty where there are more values than bytes can tell."""
        values, places = np.unique(image, return_inverse=True)
        fresh = [value for value in values.tolist() if value not in self._levels]
        if len(self._levels) + len(fresh) > LEVELS:
            return b""
        for value in fresh:
            self._levels[value] = len(self._levels)
        table = np.array([self._levels[value] for value in values.tolist()], dtype=np.uint8)
        return bytes(table[places.reshape(-1)].tobytes())

    def _flush(self) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    for key, value in self._waiting:
                        transaction.put(key, value)
                break
            except lmdb.MapFullError:  # the transaction is undone
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])
        self._waiting = []


def pack(samples: Iterator[Record], folder: str) -> None:
    """Write one part."""
    writer = Writer(folder)
    for sample in samples:
        writer.add(sample)
    writer.close()


class Part:
    """One environment, mapped: values are read where they lie."""

    def __init__(self, folder: str) -> None:
        """OSError names an environment that cannot be opened."""
        self.path = os.path.join(folder, "data.mdb")
        try:
            # No locks: nobody writes. No reading ahead: samples are wanted in a shuffled order.
            self._environment = lmdb.open(folder, readonly=True, lock=False, readahead=False, max_spare_txns=64)
            with self._environment.begin() as transaction:
                self.keys = [key for key in transaction.cursor().iternext(values=False) if key != VALUES]
                values = transaction.get(VALUES)
                self.values = parsed(values).floats if values is not None else None
        except (lmdb.Error, ValueError) as error:
            raise OSError("cannot read the records in %s: %s; pack them again" % (self.path, error))
        self._mine = threading.local()

    def get(self, key: bytes) -> Any:
        """A view of a value, None for a key that is not there; good until the environment is closed."""
        transaction = getattr(self._mine, "transaction", None)
        if transaction is None:  # a thread's own, kept: nothing is written that it could miss
            transaction = self._mine.transaction = self._environment.begin(buffers=True)
        return transaction.get(key)


class Database(Source):
    """The samples of all parts, by number."""

    def __init__(self, records: RecordSource) -> None:
        """Open every part; OSError names one that is broken."""
        self.name, self.classes, self._kind = records.name, records.classes, records.kind
        self.photographs = Photographs(records.how, records.input_shape[1]) if records.kind == "folder" else None
        parts = [Part(folder) for folder in records.parts]
        self._places = sorted((key, part) for part, each in enumerate(parts) for key in each.keys)
        if len(self._places) != len(records):
            told = "%s should hold %d samples and holds %d; pack it again"
            raise OSError(told % (records.path, len(records), len(self._places)))
        self._parts = parts

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._places)

    def sample(self, index: int) -> Tuple[np.ndarray, int]:
        """The centre crop, or the array; OSError names file and key of what is broken."""
        datum, part, name = self._found(index)
        if self.photographs is not None:
            return self.photographs.centre(bytes(datum.data), name), datum.label
        floats = datum.floats if part.values is None or not len(datum.data) else part.values[np.asarray(datum.data)]
        return floats.reshape(datum.shape), datum.label

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[np.ndarray, int]:
        """A random crop, perhaps flipped."""
        if self.photographs is None:
            return super().augmented(index, stream)
        datum, _, name = self._found(index)
        return self.photographs.random(bytes(datum.data), name, stream), datum.label

    def paths(self) -> List[str]:
        """The mapped files."""
        return [part.path for part in self._parts]

    def _found(self, index: int) -> Tuple[Datum, Part, str]:
        key, number = self._places[index]
        part = self._parts[number]
        name = "%s, key %d" % (part.path, KEY.unpack(key)[0])
        try:
            return parsed(part.get(key)), part, name
        except (lmdb.Error, ValueError, TypeError) as error:
            raise OSError("cannot read the record %s: %s; pack it again" % (name, error))
