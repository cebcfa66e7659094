"""Is the adapter's reading as fast as a plain DataLoader over the same files?

    python tests/validation/pytorch_reader.py --data imagenet-like --readers 2

Both readers live in one process, have as many worker processes and read as far ahead; see `reading`. "ours" is
what `io_only` measures, next_batch alone; "placed" adds to_device, after which the images are normalised and in
the network's memory format: the plain reader's are normalised, but still contiguous. The plain one of digits is a
TensorDataset.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from PIL import Image
from reading import SETS, arguments, compared, cropped, listed, report
from torch.utils.data import DataLoader, Dataset, TensorDataset

from stagebench.suite.worker.job import DataSet
from stagebench.suite.worker.sources import open_source
from stagebench.suite.worker.view import View
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from tests.support.jobs import READ_ONCE
from tests.support.trainers import by_strategy, setup

PREFETCH, EPOCH = 2, 10000


class Folder(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        with Image.open(path) as image:
            return torch.from_numpy(cropped(image)), label


def plain(data, path, readers, batch):
    """A function that gives the next batch."""
    if data == "digits":
        with np.load(path) as content:
            images = content["images"][:, None].astype(np.float32) / 255
            labels = torch.from_numpy(content["labels"].astype(np.int64))
        dataset = TensorDataset(torch.from_numpy((images - images.mean()) / images.std()), labels)
    else:
        files = listed(path)
        dataset = Folder(files * (EPOCH // len(files)))  # the end of an epoch, where workers pause, stays rare
    loader = DataLoader(
        dataset,
        batch_size=batch,
        shuffle=True,
        num_workers=readers,
        prefetch_factor=PREFETCH,
        persistent_workers=True,
        drop_last=True,
    )

    def endless():
        while True:
            yield from loader

    return endless().__next__


def ours(path, readers, batch, shape):
    """(trainer, its readers open)."""
    trainer = by_strategy("pytorch")(setup(batch=batch, tuning="tuned", readers=readers, prefetch=PREFETCH))
    trainer.start()
    b = Builder("small", shape, 10)  # what `to_device` has to know: a network with convolutions
    b.head(b.dense("fc", b.flatten("flat", b.conv("conv", "input", 1, 7, stride=7)), 10))
    trainer.build(b.graph, dict(weights.initial(b.graph)))
    source = open_source(DataSet("arrays" if path.endswith(".npz") else "folder", path), shape, 10)
    trainer.open_input(View(source, READ_ONCE, 1, ""))
    return trainer


def measured(data, path, readers, rounds):
    _, batch, shape = SETS[data]
    trainer = ours(path, readers, batch, shape)
    ways = {
        "plain": plain(data, path, readers, batch),
        "ours": trainer.next_batch,
        "placed": lambda: trainer.to_device(trainer.next_batch()),
    }
    found = compared(ways, batch, readers * PREFETCH + readers, rounds)
    trainer.close()
    return found


def main():
    asked = arguments(__doc__)
    return report(asked, lambda data, path, readers: measured(data, path, readers, asked.rounds))


if __name__ == "__main__":
    sys.exit(main())
