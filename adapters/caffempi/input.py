"""Data sets packed as LMDB, Caffe's database, and Caffe-MPI's parallel reading threads.

A part is an environment of its own. Keys are sample numbers, eight bytes, the highest first, so that they
are sorted; values are Caffe's Datum: an image file's own bytes, or the pixels of an array. Pixels that
take at most 256 values, as those of 8-bit images do however they were normalised, are stored as bytes, and
the values under a key of their own: a quarter of the size, the same floats.
"""

import os
import struct
import threading
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import lmdb
import numpy as np
import torch

from stagebench.adapters.caffempi.datum import LABEL, Datum, number, parsed, varint
from stagebench.suite.worker.contract import Batch, Setup
from stagebench.suite.worker.packed_set import Record, RecordSource
from stagebench.suite.worker.photographs import Photographs
from stagebench.suite.worker.sources import Source
from stagebench.suite.worker.threaded import ThreadedReader
from stagebench.suite.worker.view import View

KEY = struct.Struct(">Q")
VALUES = b"values"  # six bytes: no sample's key; a Datum whose floats are what the levels stand for
LEVELS = 256
AT_ONCE = 256  # samples of one transaction
FIRST_SIZE = 1 << 26  # bytes that an environment may grow to, doubled as it fills


class Writer:
    """A part that is being written."""

    def __init__(self, folder: str) -> None:
        self._environment = lmdb.open(folder, map_size=FIRST_SIZE, lock=False, sync=False, metasync=False)
        self._levels: Dict[float, int] = {}
        self._waiting: List[Tuple[bytes, bytes]] = []

    def add(self, sample: Record) -> None:
        if sample.encoded is not None:
            datum = Datum(sample.label, (0, 0, 0), sample.encoded, (), True)
        else:
            values, places = np.unique(sample.image, return_inverse=True)
            fresh = [value for value in values.tolist() if value not in self._levels]
            datum = Datum(sample.label, sample.image.shape, b"", sample.image.reshape(-1), False)
            if len(self._levels) + len(fresh) <= LEVELS:  # else there are more values than bytes can tell
                for value in fresh:
                    self._levels[value] = len(self._levels)
                table = np.array([self._levels[value] for value in values.tolist()], dtype=np.uint8)
                datum = datum._replace(data=table[places.reshape(-1)].tobytes(), floats=())
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
    writer = Writer(folder)
    for sample in samples:
        writer.add(sample)
    writer.close()


# A message of levels: its shape, the bytes before the levels, and its length up to the label.
Layout = NamedTuple("Layout", [("shape", Tuple[int, ...]), ("before", bytes), ("end", int)])


class Part:
    """An environment, mapped: values are read from the map, without a copy."""

    def __init__(self, folder: str) -> None:
        """OSError names an environment that cannot be opened."""
        self.path = os.path.join(folder, "data.mdb")
        try:
            # No locks: no process writes. No reading ahead: samples are wanted in a shuffled order.
            self._environment = lmdb.open(folder, readonly=True, lock=False, readahead=False, max_spare_txns=64)
            needed = (self._environment.info()["last_pgno"] + 1) * self._environment.stat()["psize"]
            if os.path.getsize(self.path) < needed:  # reading beyond a mapped file's end kills the process
                self._environment.close()
                raise ValueError(f"{os.path.getsize(self.path)} of {needed} bytes are there")
            with self._environment.begin() as transaction:
                self.keys = [key for key in transaction.cursor().iternext(values=False) if key != VALUES]
                values = transaction.get(VALUES)
                self.values = parsed(values).floats if values is not None else None
        except (lmdb.Error, ValueError) as error:
            raise OSError(f"cannot read the records in {self.path}: {error}; pack them again")
        self._mine = threading.local()

    def get(self, key: bytes) -> Any:
        """A view of a value, None for a key that is not there; good until the environment is closed."""
        try:
            return self._mine.get(key)
        except AttributeError:  # a thread's own, kept: nothing is written that it could miss
            self._mine.get = self._environment.begin(buffers=True).get
            return self._mine.get(key)

    def layout(self) -> Optional[Layout]:
        """How the messages of levels look, by the first one; None where there are none."""
        first = bytes(self.get(self.keys[0])) if self.keys and self.values is not None else b""
        datum = parsed(first) if first else None
        if datum is None or not len(datum.data):
            return None
        end = len(first) - len(number(LABEL, datum.label))
        return Layout(datum.shape, first[: end - len(datum.data)], end)


class Database(Source):
    """The samples of all parts, by number."""

    def __init__(self, records: RecordSource) -> None:
        """Open every part; OSError names one that is broken."""
        self.name = records.name
        self.classes = records.classes
        self.photographs = Photographs(records.how, records.input_shape[1]) if records.kind == "folder" else None
        parts = [Part(folder) for folder in records.parts]
        self._places = sorted((key, part) for part, each in enumerate(parts) for key in each.keys)
        if len(self._places) != len(records):
            problem = "%s should hold %d samples and holds %d; pack it again"
            raise OSError(problem % (records.path, len(records), len(self._places)))
        self._parts = parts
        layouts = {part.layout() for part in parts} if records.kind == "arrays" else set()
        self._layout = layouts.pop() if len(layouts) == 1 else None
        # What the levels of all parts stand for, one table after the other.
        self._values = np.zeros(len(parts) * LEVELS, dtype=np.float32)
        for place, part in enumerate(parts):
            if part.values is not None:
                self._values[place * LEVELS :][: len(part.values)] = part.values

    def __len__(self) -> int:
        return len(self._places)

    def sample(self, index: int) -> Tuple[np.ndarray, int]:
        """The centre crop, or the array; OSError names file and key of what is broken."""
        datum, part, name = self._found(index)
        if self.photographs is not None:
            return self.photographs.centre(bytes(datum.data), name), datum.label
        floats = datum.floats if part.values is None or not len(datum.data) else part.values[np.asarray(datum.data)]
        return floats.reshape(datum.shape), datum.label

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[np.ndarray, int]:
        if self.photographs is None:
            return super().augmented(index, stream)
        datum, _, name = self._found(index)
        return self.photographs.random(bytes(datum.data), name, stream), datum.label

    def taken(self, indices: List[int]) -> Optional[Batch]:
        """A batch at once, of samples that are all stored as levels alike; None where one is not."""
        if self._layout is None:
            return None
        shape, before, end = self._layout
        begin = len(before)
        rows = []
        labels = []
        tables = []
        for index in indices:
            key, part = self._places[index]
            message = self._parts[part].get(key)
            if message is None or len(message) < end + 2 or message[:begin] != before:
                return None
            rows.append(message[begin:end])
            labels.append(message[end + 1] if message[end + 1] < 128 else varint(message, end + 1)[0])
            tables.append(part)
        levels: Any = np.frombuffer(b"".join(rows), np.uint8).reshape((len(rows),) + shape)
        if len(self._parts) > 1:
            levels = levels + LEVELS * np.array(tables).reshape(-1, 1, 1, 1)
        return Batch(self._values.take(levels), np.array(labels, dtype=np.int64))

    def paths(self) -> List[str]:
        return [part.path for part in self._parts]

    def _found(self, index: int) -> Tuple[Datum, Part, str]:
        key, place = self._places[index]
        part = self._parts[place]
        name = f"{part.path}, key {KEY.unpack(key)[0]}"
        try:
            return parsed(part.get(key)), part, name
        except (lmdb.Error, ValueError, TypeError) as error:
            raise OSError(f"cannot read the record {name}: {error}; pack it again")


class ReadingThreads(ThreadedReader):
    """Caffe-MPI's parallel reading threads, over files or a database; for a GPU they copy batches to pinned memory.

    Photographs are decoded one by one; arrays in a database, where a sample takes microseconds, a batch at a time.
    """

    def __init__(self, view: View, setup: Setup, database: Optional[Database] = None) -> None:
        self._view = view
        # The database itself below the view: not a part of it (a subset).
        self._whole = database if view.source is database and not view.random else None
        self._pins = setup.device == "cuda"
        super().__init__(view, setup)
        if database is not None:
            self.words += ", LMDB, memory-mapped"

    def _read(self, indices: List[int]) -> Batch:
        found = None
        if self._whole is not None:
            found = self._whole.taken([self._view.index(position) for position in indices])
        if found is None:
            found = super()._read(indices)
        if not self._pins:
            return found
        parts = []
        for part in found:
            # torch gives a pinned block out again only when the copy from it is done.
            dtype = torch.from_numpy(part).dtype
            room = torch.empty(part.shape, dtype=dtype, pin_memory=torch.cuda.is_available())
            np.copyto(room.numpy(), part)  # torch would take threads of its own for it
            parts.append(room)
        return Batch(*parts)
