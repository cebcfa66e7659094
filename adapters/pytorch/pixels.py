"""Photographs as bytes until they reach the device: scaled by torch, normalised where the network runs.

torch's antialiased bilinear scaling of bytes is the same triangle filter as Pillow's, in vector
instructions: a third of the time, one level off at most. And a batch of bytes is a quarter of the
memory that readers hand over and a GPU fetches.
"""

from functools import partial
from typing import Any, NamedTuple, Tuple

import numpy as np
import torch
from torch.nn import functional

from suite.worker.photographs import Photographs, naming, random_box
from suite.worker.sources import Source
from workloads.preprocessing import Box, Preprocessing

LARGEST = 8  # crops: of an image that is much longer than wide, more would be scaled than is cut out


class ImageFiles(Source):
    """The files of another source, whose samples a subclass makes in its own way."""

    def __init__(self, source: Source) -> None:
        assert source.files is not None
        assert source.photographs is not None
        self._files, self._photographs = source.files, source.photographs
        self.name, self.classes = source.name, source.classes

    def __len__(self) -> int:
        return len(self._files)


class Pixels(ImageFiles):
    """Image files as uint8 tensors (height, width, 3), not normalised."""

    def sample(self, index: int) -> Tuple[Any, int]:
        """The centre crop of one image; OSError names an unreadable file."""
        path, label = self._files[index]
        with naming(path):
            return centre(self._photographs, path), label

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[Any, int]:
        """A random crop of it, perhaps flipped; its box is no multiple of a pixel, which torch cannot scale."""
        path, label = self._files[index]
        pixels = self._photographs.decoded(path, path, partial(random_box, self._photographs.how, stream))
        flipped = stream.random_sample() < self._photographs.how.flip
        return torch.from_numpy(np.array(pixels[:, ::-1] if flipped else pixels)), label


class Cut(NamedTuple):
    """A centre crop out of the whole image, scaled: to which height and width, and where the crop begins."""

    height: int
    width: int
    top: int
    left: int


def cut_of(size: Tuple[int, int], box: Box, crop: int) -> Cut:
    """For an image of (width, height) and its `Preprocessing.centre` box."""
    across, down = (box[2] - box[0]) / crop, (box[3] - box[1]) / crop  # pixels of the image for one of the crop
    whole = int(round(size[1] / down)), int(round(size[0] / across))
    return Cut(*whole, int(round(box[1] / down)), int(round(box[0] / across)))


def wasteful(cut: Cut, crop: int) -> bool:
    """Whether far more would be scaled than is cut out."""
    return cut.width * cut.height > LARGEST * crop * crop


def centre(photographs: Photographs, file: Any) -> torch.Tensor:
    """The centre crop: the whole image is scaled, then cut at whole pixels."""
    crop = photographs.crop
    image, box = photographs.opened(file, partial(photographs.how.centre, crop=crop))
    cut = cut_of(image.size, box, crop)
    if wasteful(cut, crop):
        return torch.from_numpy(np.array(photographs.scaled(image, box)))
    whole = torch.from_numpy(np.array(image))[None].permute(0, 3, 1, 2)
    scaled = functional.interpolate(whole, (cut.height, cut.width), mode="bilinear", antialias=True)
    return scaled[0].permute(1, 2, 0)[cut.top : cut.top + crop, cut.left : cut.left + crop]


class Normalise:
    """Bytes (samples, height, width, 3) to float32 (samples, 3, height, width), in channels-last memory."""

    def __init__(self, how: Preprocessing, crop: int, device: Any) -> None:
        # A line at a time: three numbers in a row are too few for vector instructions.
        self._mean = torch.tensor(how.mean, dtype=torch.float32, device=device).repeat(crop)
        self._deviation = torch.tensor(how.deviation, dtype=torch.float32, device=device).repeat(crop)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """With the same roundings as the plain source's."""
        samples, height, width, channels = pixels.shape
        lines = pixels.reshape(samples, height, width * channels).to(torch.float32)
        return lines.sub_(self._mean).div_(self._deviation).view(pixels.shape).permute(0, 3, 1, 2)
