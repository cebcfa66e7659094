"""Packing a data set as LMDB, Caffe's database.

A part is an environment of its own. Keys are sample numbers, eight bytes, the highest first, so that they
are sorted; values are Caffe's Datum: an image file's own bytes, or the pixels of an array. Pixels that
take at most 256 values, as those of 8-bit images do however they were normalised, are stored as bytes, and
the values under a key of their own: a quarter of the size, the same floats.
"""

import struct
from typing import Dict, Iterator, List, Tuple

import lmdb
import numpy as np

from adapters.caffempi.datum import Datum
from suite.worker.packed_set import Record

KEY = struct.Struct(">Q")
VALUES = b"values"  # six bytes: no sample's key; a Datum whose floats are what the levels stand for
LEVELS = 256
AT_ONCE = 256  # samples of one transaction
FIRST_SIZE = 1 << 26  # bytes that an environment may grow to, doubled as it fills


class Writer:
    """One part in the making."""

    def __init__(self, folder: str) -> None:
        self._environment = lmdb.open(folder, map_size=FIRST_SIZE, lock=False, sync=False, metasync=False)
        self._levels: Dict[float, int] = {}
        self._waiting: List[Tuple[bytes, bytes]] = []

    def add(self, sample: Record) -> None:
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
    writer = Writer(folder)
    for sample in samples:
        writer.add(sample)
    writer.close()
