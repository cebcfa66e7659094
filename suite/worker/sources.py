"""The sources of samples: an array file, a folder of images, a text, or a subset of another source.

A source gives any sample by index and each rank's order for an epoch; the adapter decides how fast it is read.

Pillow, which decodes images, is a part of the framework's environment.
"""

import os
from typing import Any, Iterator, List, Optional, Tuple

import numpy as np

from stagebench.suite.worker import text_files
from stagebench.suite.worker.array_files import loaded
from stagebench.suite.worker.image_folder import left_out_words, listed
from stagebench.suite.worker.job import DataSet
from stagebench.suite.worker.photographs import Photographs
from stagebench.workloads.catalogue import PHOTOGRAPHS, Preprocessing
from stagebench.workloads.graph import Shape


class Source:
    """A source of samples by index; `sample` returns (float32 CHW image, normalised; int label).

    A text's returns (int64 tokens, their labels).
    """

    name = ""
    classes = 0  # labels are below it
    consecutive = False  # True: samples follow each other in one text, so that the last ones are held out
    # A framework's own reader may take these instead of asking for sample after sample:
    records: Any = None  # the stagebench.suite.worker.packed_set.RecordSource, if the set is packed
    files: Optional[List[Tuple[str, int]]] = None  # (path, label) of every sample, if they are image files
    photographs: Optional[Photographs] = None  # cuts and scales them
    arrays: Optional[Tuple[np.ndarray, np.ndarray]] = None  # images and labels, if in memory as a network's

    def __len__(self) -> int:
        raise NotImplementedError

    def sample(self, index: int) -> Tuple[np.ndarray, Any]:
        """Read and decode one sample; OSError or ValueError names the file."""
        raise NotImplementedError

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[np.ndarray, int]:
        """Return a sample, cut and flipped at random; ValueError if the source has no such samples."""
        raise ValueError(f"{self.name} is not augmented: random crops and flips are for image folders")

    def index(self, position: int) -> int:
        """Return the sample index at position `position` of `order`."""
        return position

    def paths(self) -> List[str]:
        """Return the files that are read during training; none for data in memory."""
        return []

    def order(self, epoch: int, seed: int, rank: int, world: int) -> Iterator[int]:
        """Return this rank's share of a shuffled epoch: the same permutation on every rank, every world-th of it.

        The tail that does not fill all ranks is skipped, so that ranks agree on the count.
        """
        permutation = np.random.RandomState((seed * 1000003 + epoch) % 2**32).permutation(len(self))
        even = len(self) // world * world
        return iter(permutation[:even][rank::world].tolist())


class Arrays(Source):
    """A source of samples in memory."""

    arrays: Tuple[np.ndarray, np.ndarray]

    def __len__(self) -> int:
        return len(self.arrays[1])

    def sample(self, index: int) -> Tuple[np.ndarray, Any]:
        images, labels = self.arrays
        return images[index], labels[index].tolist()


class ArraySource(Arrays):
    """The arrays `images` (N x H x W) and `labels`; images are scaled to mean 0, deviation 1.

    They come from an .npz file with arrays of these names, or from a folder with MNIST's original files.
    """

    def __init__(self, path: str, shape: Shape) -> None:
        """Load everything; ValueError if the images are not of the network's shape, or not as many as labels."""
        images, labels = loaded(path)
        if images.shape[1:] != tuple(shape[1:]):
            raise ValueError(f"{path} holds images of {images.shape[1:]!r}, the network wants {tuple(shape)!r}")
        scaled = images.astype(np.float32) / 255.0
        self.arrays = ((scaled - scaled.mean()) / scaled.std())[:, np.newaxis], labels.astype(np.int64)
        self.classes = int(labels.max()) + 1
        self.name = f"{os.path.basename(path)} ({len(labels)} samples)"


class TextSource(Arrays):
    """The windows of a text, in its order: `positions` tokens each; the label of a token is the one that follows it."""

    consecutive = True

    def __init__(self, path: str, positions: int, vocabulary: int, digest: str = "") -> None:
        """Load everything; ValueError if the text does not fit the network, or has another digest."""
        tokens, found = text_files.loaded(path), text_files.digest(path)
        if digest and found != digest:
            raise ValueError(
                f"{path} has a SHA-256 that begins with {found}, and {digest} is to be learnt; bring the same text to "
                "every host"
            )
        refused = text_files.refusal(path, tokens, positions, vocabulary)
        if refused:
            raise ValueError(refused)
        windows = text_files.windows(len(tokens), positions)
        read = tokens[: windows * positions + 1].astype(np.int64)
        self.arrays = read[:-1].reshape(windows, positions), read[1:].reshape(windows, positions)
        self.classes = int(tokens.max()) + 1
        counts = f"{len(tokens)} tokens, SHA-256 {found}; {windows} windows of {positions}"
        self.name = f"{os.path.basename(path)} ({counts})"


class FolderSource(Source):
    """A folder with one sub-folder per class (ImageNet's layout), decoded by Pillow."""

    photographs: Photographs
    files: List[Tuple[str, int]]

    def __init__(self, path: str, shape: Shape, how: Preprocessing = PHOTOGRAPHS) -> None:
        """List the folder; ValueError if it holds no classes or no images."""
        self.photographs = Photographs(how, shape[1])
        found = listed(path)
        self.files = found.files
        self.classes = len(found.classes)
        counts = f"{len(found.files)} images, {len(found.classes)} classes"
        words = [counts] + ([left_out_words(found.left_out)] if found.left_out else [])
        self.name = f"{os.path.basename(path)} ({'; '.join(words)})"

    def __len__(self) -> int:
        return len(self.files)

    def sample(self, index: int) -> Tuple[np.ndarray, int]:
        """Return the centre crop of one image, and its label; OSError names an unreadable file."""
        path, label = self.files[index]
        return self.photographs.centre(path, path), label

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[np.ndarray, int]:
        """Return a random crop of one image, perhaps flipped, and its label."""
        path, label = self.files[index]
        return self.photographs.random(path, path, stream), label

    def paths(self) -> List[str]:
        return [path for path, _ in self.files]


def open_source(data: DataSet, shape: Shape, classes: int, vocabulary: int = 0) -> Source:
    """Open arrays, a folder of images or a text; ValueError if it has more classes than the network has outputs."""
    if data.kind == "arrays":
        source: Source = ArraySource(data.path, shape)
    elif data.kind == "text":
        source = TextSource(data.path, shape[0], min(vocabulary, classes), data.digest)
    elif data.kind == "folder":
        source = FolderSource(data.path, shape, data.preprocessing)
    else:
        raise ValueError(f"unknown kind of data {data.kind!r}; known: arrays, folder, text")
    refuse_classes(data.path, source.classes, classes)
    return source


def refuse_classes(path: str, classes: int, outputs: int) -> None:
    """Raise ValueError for a set that has more classes than the network has outputs."""
    if classes > outputs:
        raise ValueError(
            f"{path} has {classes} classes, the network has {outputs} outputs; name a network with as many as "
            "there are classes"
        )


class Subset(Source):
    """A subset of a source, reindexed from 0."""

    def __init__(self, source: Source, indices: List[int], what: str) -> None:
        """`indices` point into the source; `what` is the subset's purpose, for its name."""
        self._source = source
        self._indices = indices
        self.classes, self.consecutive = source.classes, source.consecutive
        self.photographs = source.photographs
        if source.files is not None:
            self.files = [source.files[index] for index in indices]
        if source.arrays is not None:
            self.arrays = source.arrays[0][indices], source.arrays[1][indices]
        self.name = f"{source.name}, {len(indices)} samples to {what}"

    def __len__(self) -> int:
        return len(self._indices)

    def sample(self, index: int) -> Tuple[np.ndarray, Any]:
        return self._source.sample(self._indices[index])

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[np.ndarray, int]:
        return self._source.augmented(self._indices[index], stream)

    def paths(self) -> List[str]:
        return self._source.paths()


def split(source: Source, fraction: float) -> Tuple[Subset, Subset]:
    """Return (training, test) subsets: the same split on every machine and in every framework.

    The first part of a fixed shuffle is held out, of a text its last part. ValueError if one half would be empty.
    """
    held_out = int(round(len(source) * fraction))
    if not 0 < held_out < len(source):
        raise ValueError(
            f"holding out {fraction:g} of {source.name} leaves one half empty ({held_out} of {len(source)} samples)"
        )
    order = np.random.RandomState(0).permutation(len(source)).tolist()
    if source.consecutive:  # windows of any other place would continue what is learnt
        order = list(reversed(range(len(source))))
    learning = Subset(source, sorted(order[held_out:]), "learn from")
    return learning, Subset(source, sorted(order[:held_out]), "test with")
