"""A workload: graph, optimiser defaults, input, preprocessing. The built-in ones: `stagebench.workloads.networks`.

Standard library only.
"""

from typing import Callable, NamedTuple, Tuple

from stagebench.workloads.graph import Graph

Box = Tuple[float, float, float, float]  # left, top, right, bottom, in pixels


class Preprocessing(NamedTuple):
    """The preprocessing of photographs: defined once, and applied alike by every reader.

    In training in earnest: a random resized crop (Szegedy 2014, section 6), flipped in half of the cases. In measuring
    and testing: the shorter side scaled to `resize`, then the centre crop. Scaling is by a triangle filter as wide as a
    pixel of the result, as Pillow's BILINEAR does. Then mean and deviation of each channel, in RGB.
    """

    resize: int  # pixels of the shorter side before the centre crop
    mean: Tuple[float, ...]  # of each channel, of values from 0 to 255
    deviation: Tuple[float, ...]
    area: Tuple[float, float]  # the least and the largest area of a random crop, as shares of the image's
    ratio: Tuple[float, float]  # the least and the largest ratio of its sides
    flip: float  # the probability of a flip

    def scaled(self, width: int, height: int) -> Tuple[int, int]:
        """Return the width and height of an image after its shorter side was scaled to `resize`."""
        if width < height:
            return self.resize, height * self.resize // width
        return width * self.resize // height, self.resize

    def centre(self, width: int, height: int, crop: int) -> Box:
        """Return the box of an image that the scaled image's centre crop shows, at whole pixels of the scaled image."""
        across, down = self.scaled(width, height)
        left, top = (across - crop) // 2, (down - crop) // 2
        x, y = width / across, height / down
        return left * x, top * y, (left + crop) * x, (top + crop) * y


PHOTOGRAPHS = Preprocessing(
    resize=256,
    mean=(0.485 * 255, 0.456 * 255, 0.406 * 255),  # of ImageNet's training set
    deviation=(0.229 * 255, 0.224 * 255, 0.225 * 255),
    area=(0.08, 1.0),
    ratio=(3 / 4, 4 / 3),
    flip=0.5,
)


class Optimiser(NamedTuple):
    """SGD with momentum, as the network's authors trained it."""

    lr: float  # at reference_batch; scaled linearly with the global batch (Goyal et al. 2017)
    reference_batch: int
    momentum: float
    weight_decay: float


class Workload(NamedTuple):
    """A network, and everything needed to train it."""

    name: str
    graph: Callable[[], Graph]
    optimiser: Optimiser
    dataset: str  # the kind of real data: "imagenet-like", "digits" or "python-topics"
    proof_batch: int  # samples per rank in a proof
    proof_lr: float  # makes the three updates of a proof large, without divergence of the loss
    source: str
    preprocessing: Preprocessing = PHOTOGRAPHS  # of photographs; digits are scaled to mean 0 and deviation 1 as a set
    large: bool = False  # its proof takes gigabytes and minutes: `stagebench verify` makes it where it is named
