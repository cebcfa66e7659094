"""The packing of a data set into records, part by part; after an interruption it resumes.

A part is written under another name and renamed when it is complete; the marker comes last.
"""

import os
import shutil
from typing import Iterator, List

import numpy as np

from suite.worker.job import Pack
from suite.worker.outbox import Outbox
from suite.worker.packed_set import (
    FORMAT,
    JOINED,
    MARKER,
    PART,
    Marker,
    Part,
    Record,
    Skipped,
    files_of,
    part_of,
    record,
)
from suite.worker.sources import Source
from suite.worker.trainer import Trainer
from suite.worker.typed_json import store

NAMED = 20  # skipped images that are named in the marker


def pack(trainer: Trainer, source: Source, task: Pack, outbox: Outbox) -> None:
    """Write the missing parts, join all parts, and write the marker."""
    folder, parts = task.folder, task.parts
    # Neighbours in a folder are of one class: every reader wants them mixed.
    order = np.random.RandomState(0).permutation(len(source)).tolist()
    names = ["part-%05d" % number for number in range(parts)]
    for number, name in enumerate(names):
        if not os.path.isdir(os.path.join(folder, name)):
            done = sum(len(order[each::parts]) for each in range(number))
            _write_part(trainer, source, order[number::parts], task, name, Counter(outbox, done, len(order)))
    _join(trainer, task.form, folder, names)
    _write_marker(source, task, names)


class Counter:
    """A counter of packed samples that reports the progress."""

    def __init__(self, outbox: Outbox, done: int, of: int) -> None:
        """`done` samples of `of` are in earlier parts."""
        self._outbox, self._done, self._of = outbox, done, of

    def one(self) -> None:
        self._done += 1
        self._outbox.progress("pack", "pack", self._done, self._of)


def _write_part(trainer: Trainer, source: Source, indices: List[int], task: Pack, name: str, counter: Counter) -> None:
    final = os.path.join(task.folder, name)
    partial = final + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    skipped: List[str] = []
    written = [0]

    def kept() -> Iterator[Record]:
        for index in indices:
            counter.one()
            try:
                found = record(source, index, task.resize)
            except OSError as error:
                if task.on_error != "skip":
                    raise
                skipped.append(str(error))
            else:
                written[0] += 1
                yield found

    trainer.pack(task.form, kept(), partial)
    store(Part(written[0], skipped), os.path.join(partial, PART))
    os.rename(partial, final)


def _join(trainer: Trainer, form: str, folder: str, names: List[str]) -> None:
    final = os.path.join(folder, JOINED)
    partial = final + ".partial"
    for earlier in (final, partial):
        shutil.rmtree(earlier, ignore_errors=True)
    os.makedirs(partial)
    trainer.join_parts(form, [os.path.join(folder, name) for name in names], partial)
    if os.listdir(partial):
        os.rename(partial, final)
    else:
        os.rmdir(partial)


def _write_marker(source: Source, task: Pack, names: List[str]) -> None:
    parts = [part_of(os.path.join(task.folder, name)) for name in names]
    samples, skipped = sum(part.samples for part in parts), [each for part in parts for each in part.skipped]
    if not samples:
        raise ValueError("none of the %d samples of %s can be read" % (len(source), source.name))
    marker = Marker(
        *task.recipe,
        format=FORMAT,
        form=task.form,
        classes=source.classes,
        samples=samples,
        parts=names,
        files=files_of(task.folder, names),
        skipped=Skipped(len(skipped), skipped[:NAMED]),
    )
    store(marker, os.path.join(task.folder, MARKER))
