"""Caffe-MPI's parallel reading threads over a database.

Oldest Python: 3.6.
"""

from typing import List

from adapters.caffempi.database import Database
from suite.worker.contract import Batch, Setup
from suite.worker.threaded import ThreadedReader
from suite.worker.view import View


class DatabaseReader(ThreadedReader):
    """Photographs are decoded one by one; arrays, where a sample takes microseconds, are taken a batch at a time."""

    def __init__(self, view: View, database: Database, setup: Setup) -> None:
        """Begin to read at once."""
        self._view, self._database = view, database
        # The database itself below the view: not a part of it (a subset), nor decoded into memory before.
        self._whole = view.source is database and not view.random
        super().__init__(view, setup)
        self.words += ", LMDB, memory-mapped"

    def _read(self, indices: List[int]) -> Batch:
        found = self._database.taken([self._view.index(at) for at in indices]) if self._whole else None
        return super()._read(indices) if found is None else found
