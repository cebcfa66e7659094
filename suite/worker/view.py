"""A source as a case wants it read: repeated, augmented, unreadable samples skipped or not.

Readers carry positions, plain integers that hold epoch and sample, so that every framework's
own reader draws the same crops for the same sample of the same epoch. Before each pass,
the source's files are brought into the page cache or out of it.
"""

import ctypes
import os
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from stagebench.suite.worker.case_parts import Input
from stagebench.suite.worker.machine import memory
from stagebench.suite.worker.sources import Arrays, Source


class View(Source):
    """A data set, read as a case's `input` says."""

    def __init__(self, source: Source, asked: Input, seed: int, log: str) -> None:
        """Note skipped samples in the file `log`."""
        self.source = source
        self._seed = seed
        self._log = log
        self._repeat = asked.repeat
        self.random = asked.augment == "random"
        self.skip = asked.on_error == "skip"
        self.classes = source.classes
        self.records = source.records
        self.arrays = None if self.random else source.arrays  # to be taken by `index`
        self.name = source.name + (f", {self._repeat} times" if self._repeat > 1 else "")

    def __len__(self) -> int:
        return self._repeat * len(self.source)

    def order(self, epoch: int, seed: int, rank: int, world: int) -> Iterator[int]:
        """Return the epoch's samples as positions, which differ from other epochs'."""
        begin = epoch * len(self)
        return (begin + index for index in super().order(epoch, seed, rank, world))

    def sample(self, index: int) -> Tuple[np.ndarray, Any]:
        """Return the sample at a position; an unreadable one raises OSError, or is replaced by the next readable."""
        count = len(self.source)
        for neighbour in range(count):
            try:
                return self._read((index + neighbour) % count, index)
            except OSError as error:
                if not self.skip:
                    raise
                self._note(str(error))
        raise OSError(f"none of the {count} samples of {self.name} can be read")

    def index(self, position: int) -> int:
        """Return the source's sample index at a position."""
        return position % len(self.source)

    def skipped(self) -> Dict[str, int]:
        """Return how often each unreadable sample was replaced so far, by message, over all of this rank's readers."""
        counts: Dict[str, int] = {}
        if os.path.exists(self._log):
            with open(self._log, errors="replace") as stream:
                for line in stream:
                    counts[line.strip()] = counts.get(line.strip(), 0) + 1
        return counts

    def _read(self, index: int, position: int) -> Tuple[np.ndarray, Any]:
        if not self.random:
            return self.source.sample(index)
        return self.source.augmented(index, np.random.RandomState([self._seed % 2**32, position % 2**32]))

    def _note(self, message: str) -> None:
        # One short write at the end of the file: readers may be processes, and lines must not mix.
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, (message.replace("\n", " ") + "\n").encode("utf-8", "replace"))
        finally:
            os.close(descriptor)


class InMemory(Arrays):
    """A source decoded once and kept: reading without the disk and the decoder."""

    def __init__(self, source: Source) -> None:
        """Decode everything; MemoryError if it would not fit into half of the free memory."""
        self.name = f"{source.name}, in memory"
        self.classes = source.classes
        first, label = source.sample(0)
        needed = first.nbytes * len(source)
        free = memory().available
        if needed > free / 2:
            raise MemoryError(
                f"{source.name} decoded takes {needed / 1000000000.0:.1f} GB of {free / 1000000000.0:.1f} GB of "
                "free memory; use data_mode = 'disk' or a smaller set"
            )
        images = np.empty((len(source),) + first.shape, first.dtype)
        labels = np.empty((len(source),) + np.shape(label), np.int64)
        for index in range(len(source)):
            images[index], labels[index] = source.sample(index)
        self.arrays = images, labels


MADV_DONTNEED = 4  # Linux' number; Python knows it from 3.8


def page_cache(paths: List[str], wanted: str) -> None:
    """Bring files into the page cache ("warm") or out of it ("cold"); "as is" leaves them.

    Dropping clean pages needs no rights; OSError names a file that cannot be opened.
    """
    if wanted == "as is":
        return
    if wanted == "cold":
        let_go(paths)
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if wanted == "cold":
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while os.read(descriptor, 1 << 20):
                    pass
        finally:
            os.close(descriptor)


def let_go(paths: List[str]) -> None:
    """Release the pages of files that this process has mapped (LMDB's): the kernel drops none that are in use.

    The next access fetches them again, so only mappings that share the file's own pages are released.
    """
    wanted = {os.path.realpath(path) for path in paths}
    system = ctypes.CDLL(None)
    with open("/proc/self/maps", errors="surrogateescape") as stream:
        lines = [line.rstrip("\n").split(None, 5) for line in stream]
    for line in lines:
        if len(line) == 6 and line[1].endswith("s") and line[5] in wanted:
            begin, end = (int(word, 16) for word in line[0].split("-"))
            system.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_DONTNEED)
