"""Photographs that decoders differ on, and what a trainer reads of them."""

import numpy as np
from PIL import Image

from stagebench.suite.worker import packed_set
from stagebench.suite.worker.packed_set import RecordSource
from stagebench.suite.worker.sources import FolderSource
from stagebench.workloads.catalogue import PHOTOGRAPHS
from tests.support import jobs
from tests.support.sent import Nobody

CROP = 32
# What makes decoders differ: odd sides, sizes that libjpeg halves or quarters, kinds of files.
KINDS = [
    ("a.jpg", (50, 40), {"quality": 90}),
    ("b.jpg", (333, 411), {"quality": 90, "subsampling": 0}),
    ("c.jpg", (901, 703), {"quality": 90}),
    ("d.jpg", (1601, 1203), {"quality": 90}),
    ("e.jpg", (640, 481), {"quality": 90, "progressive": True}),
    ("f.JPEG", (300, 300), {"quality": 75, "grey": True}),
    ("g.png", (77, 91), {}),
    ("h.png", (91, 77), {"alpha": True}),
    ("i.jpg", (20, 18), {"quality": 90}),
]


def photograph(path, size, number, grey=False, alpha=False, **options):
    """Smooth shades and some noise; no two alike."""
    stream = np.random.RandomState(number)
    small = Image.fromarray(stream.randint(0, 255, (9, 9, 3)).astype(np.uint8))
    values = np.asarray(small.resize(size, Image.Resampling.BICUBIC), dtype=np.int64)
    image = Image.fromarray(np.clip(values + stream.randint(-9, 9, values.shape), 0, 255).astype(np.uint8))
    image.convert("L" if grey else "RGBA" if alpha else "RGB").save(path, **options)


def of(folder):
    return FolderSource(str(folder), (3, CROP, CROP))


def read(ours, batches):
    return [ours.as_numpy(ours.next_batch()) for _ in range(batches)]


def levels_apart(images, wanted):
    scale = np.array(PHOTOGRAPHS.deviation, np.float32).reshape(-1, 1, 1)
    return np.abs((images - wanted) * scale)


def pack(trainer, source, folder, parts):
    packed_set.pack(trainer(), source, jobs.packing("tfrecord", folder, parts=parts), Nobody())
    return RecordSource(str(folder))
