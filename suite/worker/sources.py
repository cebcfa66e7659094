"""Where samples come from: generated arrays, an array file, a folder of images.

A source gives any sample by index and each rank's order for an epoch; *how fast* it is
read is the adapter's affair.

Oldest Python: 3.6. Pillow, where images are decoded, is a part of the framework's
environment.
"""

import math
import os
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

from suite.worker import idx

Box = Tuple[float, float, float, float]  # left, top, right, bottom, in pixels
TRIES = 10

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

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[np.ndarray, int]:
        """The same sample, cut and flipped at random; ValueError where that makes no sense."""
        raise ValueError("%s is not augmented: random crops and flips are for image folders" % self.name)

    def paths(self) -> List[str]:
        """The files that it reads as training goes; none for what is in memory."""
        return []

    def order(self, epoch: int, seed: int, rank: int, world: int) -> Iterator[int]:
        """This rank's share of a shuffled epoch: the same permutation on every rank, every world-th of it.

        The tail that does not fill all ranks is left out, so that ranks agree on the count.
        """
        permutation = np.random.RandomState((seed * 1000003 + epoch) % 2**32).permutation(len(self))
        even = len(self) // world * world
        return iter(permutation[:even][rank::world].tolist())


class ArraySource(Source):
    """`images` (uint8, N x H x W) and `labels`: scaled to mean 0, deviation 1.

    From an .npz file with arrays of these names, or from a folder with MNIST's original files.
    """

    def __init__(self, path: str, shape: Tuple[int, ...]) -> None:
        """Load everything; ValueError when the images are not of the network's shape, or not as many as labels."""
        images, labels = loaded(path)
        if len(images) != len(labels):
            raise ValueError("%s holds %d images and %d labels; they do not match" % (path, len(images), len(labels)))
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


def loaded(path: str) -> Tuple[np.ndarray, np.ndarray]:
    """(images, labels) as they are stored."""
    if not os.path.isdir(path):
        with np.load(path) as data:
            return data["images"], data["labels"]
    files = idx.pair(path)
    if files is None:
        raise ValueError("%s holds neither %s nor their gzipped forms" % (path, " and ".join(idx.PARTS["train"])))
    return idx.read(files[0]), idx.read(files[1])


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

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[np.ndarray, int]:
        """A random resized crop, flipped in half of the cases (Szegedy 2014)."""
        path, label = self.files[index]
        pixels = self.decoded(path, partial(random_box, stream))
        return self.normalised(pixels[:, ::-1] if stream.random_sample() < 0.5 else pixels), label

    def paths(self) -> List[str]:
        """Every image."""
        return [path for path, _ in self.files]

    def centre_box(self, width: int, height: int) -> Box:
        """The middle of the shorter side, as if that had been scaled to `resize`."""
        side = self.crop / float(self.resize) * min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    def decoded(self, path: str, box_of: Optional[Callable[[int, int], Box]] = None) -> np.ndarray:
        """What `box_of(width, height)` names (the centre), scaled to the crop: uint8 (height, width, 3)."""
        from PIL import Image  # here: sources of arrays need no decoder

        try:
            with Image.open(path) as opened:
                full = opened.size
                box = (box_of or self.centre_box)(*full)
                # Lets libjpeg scale while decoding, never below what the crop needs.
                across, down = full[0] / (box[2] - box[0]), full[1] / (box[3] - box[1])
                opened.draft("RGB", (int(self.crop * across), int(self.crop * down)))
                image = opened.convert("RGB")
                across, down = image.size[0] / float(full[0]), image.size[1] / float(full[1])
                scaled = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
                return np.asarray(image.resize((self.crop, self.crop), BILINEAR, box=scaled))
        except MemoryError:
            raise
        except Exception as error:  # decoders raise what they like, for a bomb an exception of their own
            raise OSError("cannot read the image %s: %s; remove or replace it" % (path, error or type(error).__name__))

    def normalised(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 HWC to float32 CHW with ImageNet's mean and deviation."""
        return (pixels.transpose(2, 0, 1).astype(np.float32) - self.MEAN) / self.STD


def random_box(stream: np.random.RandomState, width: int, height: int) -> Box:
    """8 to 100 % of the area, sides 3:4 to 4:3 (Szegedy 2014, section 6); the largest centre when ten tries fail."""
    for _ in range(TRIES):
        area = stream.uniform(0.08, 1.0) * width * height
        ratio = math.exp(stream.uniform(math.log(3 / 4.0), math.log(4 / 3.0)))
        across, down = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if across <= width and down <= height:
            left, top = stream.uniform(0, width - across), stream.uniform(0, height - down)
            return left, top, left + across, top + down
    side = min(width, height)
    return (width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2


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
