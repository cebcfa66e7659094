"""Where samples come from: generated arrays, an array file, a folder of images.

A source gives any sample by index and each rank's order for an epoch; *how fast* it is
read is the adapter's affair.

Oldest Python: 3.6. Pillow, where images are decoded, is a part of the framework's
environment.
"""

import os
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

BILINEAR = 2  # Pillow's number: the name moved between the releases for Python 3.6 and 3.13
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


class Source:
    """Samples by index. `sample` returns (float32 CHW image, normalised; int label)."""

    name = ""
    classes = 0  # labels are below it

    def __len__(self) -> int:
        """Number of samples."""
        raise NotImplementedError

    def sample(self, index: int) -> Tuple[np.ndarray, int]:
        """Read and decode one sample; OSError or ValueError names the file."""
        raise NotImplementedError

    def order(self, epoch: int, seed: int, rank: int, world: int) -> Iterator[int]:
        """This rank's share of a shuffled epoch: the same permutation on every rank, every world-th of it.

        The tail that does not fill all ranks is left out, so that ranks agree on the count.
        """
        permutation = np.random.RandomState((seed * 1000003 + epoch) % 2**32).permutation(len(self))
        even = len(self) // world * world
        return iter(permutation[:even][rank::world].tolist())


class ArraySource(Source):
    """An .npz file with `images` (uint8, N x H x W) and `labels`: scaled to mean 0, deviation 1."""

    def __init__(self, path: str, shape: Tuple[int, ...]) -> None:
        """Load everything; ValueError when the images are not of the network's shape."""
        with np.load(path) as data:
            images, labels = data["images"], data["labels"]
        if images.shape[1:] != tuple(shape[1:]):
            raise ValueError("%s holds images of %r, the network wants %r" % (path, images.shape[1:], tuple(shape)))
        scaled = images.astype(np.float32) / 255.0
        self.images = ((scaled - scaled.mean()) / scaled.std())[:, np.newaxis]
        self.labels = labels.astype(np.int64)
        self.classes = int(self.labels.max()) + 1
        self.name = "%s (%d samples)" % (os.path.basename(path), len(labels))

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.labels)

    def sample(self, index: int) -> Tuple[np.ndarray, int]:
        """One image and its label."""
        return self.images[index], int(self.labels[index])


class FolderSource(Source):
    """A folder with one sub-folder per class (ImageNet's layout), decoded by Pillow.

    Shorter side to `resize`, centre crop to the network's input, then mean and deviation
    of ImageNet per channel.
    """

    MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32).reshape(3, 1, 1) * 255
    STD = np.array([0.229, 0.224, 0.225], dtype=np.float32).reshape(3, 1, 1) * 255

    def __init__(self, path: str, shape: Tuple[int, ...], resize: int = 256) -> None:
        """List the folder; ValueError when it holds no classes or no images."""
        self.crop, self.resize = shape[1], resize
        self.files, names = listed(path)
        self.classes = len(names)
        self.name = "%s (%d images, %d classes)" % (os.path.basename(path), len(self.files), self.classes)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.files)

    def sample(self, index: int) -> Tuple[np.ndarray, int]:
        """Decode, resize, crop and normalise one image; OSError names an unreadable file."""
        path, label = self.files[index]
        return self.normalised(self.decoded(path)), label

    def decoded(self, path: str) -> np.ndarray:
        """The centre crop, uint8 (height, width, 3)."""
        from PIL import Image  # here: sources of arrays need no decoder

        try:
            with Image.open(path) as opened:
                # Lets libjpeg scale while decoding, never below what the crop needs.
                opened.draft("RGB", (self.resize, self.resize))
                image = opened.convert("RGB")
                width, height = image.size
                side = self.crop / float(self.resize) * min(width, height)
                left, top = (width - side) / 2, (height - side) / 2
                crop = image.resize((self.crop, self.crop), BILINEAR, box=(left, top, left + side, top + side))
                return np.asarray(crop)
        except MemoryError:
            raise
        except Exception as error:  # decoders raise what they like, for a bomb an exception of their own
            raise OSError("cannot read the image %s: %s; remove or replace it" % (path, error or type(error).__name__))

    def normalised(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 HWC to float32 CHW with ImageNet's mean and deviation."""
        return (pixels.transpose(2, 0, 1).astype(np.float32) - self.MEAN) / self.STD


def listed(path: str) -> Tuple[List[Tuple[str, int]], List[str]]:
    """((file, label), ...) and class names, both sorted; ValueError names what is missing."""
    classes = sorted(entry for entry in os.listdir(path) if os.path.isdir(os.path.join(path, entry)))
    if not classes:
        raise ValueError("%s has no class folders; it should hold one folder of images per class" % path)
    files: List[Tuple[str, int]] = []
    for label, name in enumerate(classes):
        folder = os.path.join(path, name)
        found = [x for x in sorted(os.listdir(folder)) if x.lower().endswith(IMAGE_SUFFIXES)]
        if not found:
            raise ValueError("the class folder %s holds no images (%s)" % (folder, ", ".join(IMAGE_SUFFIXES)))
        files.extend((os.path.join(folder, x), label) for x in found)
    return files, classes


def open_source(spec: Dict[str, Any], shape: Tuple[int, ...], classes: int) -> Source:
    """The source of a job's `data` entry: {"kind": "arrays" | "folder", "path": ...}.

    ValueError when it has more classes than the network has outputs.
    """
    kinds = {"arrays": ArraySource, "folder": FolderSource}
    if spec["kind"] not in kinds:
        raise ValueError("unknown kind of data %r; known: %s" % (spec["kind"], ", ".join(sorted(kinds))))
    source: Source = kinds[spec["kind"]](spec["path"], shape)  # type: ignore[abstract]
    if source.classes > classes:
        raise ValueError("%s has %d classes, the network has %d outputs" % (spec["path"], source.classes, classes))
    return source
