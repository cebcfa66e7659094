"""The comparison of a reader's samples with those that the plain source makes of the same files.

A reader may deliver in any order: each sample is matched with the nearest of the plain source's, and each of those
must come exactly once.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Bounds:
    """The largest allowed distance of pixels: the mean, and that of any pixel."""

    mean: float
    most: float
    reason: str = ""  # for looser bounds than usual

    def __str__(self) -> str:
        most = f", most {self.most:g}" if np.isfinite(self.most) else ""
        return f"mean {self.mean:g}{most}" + (f": {self.reason}" if self.reason else "")


# In levels of 0 to 255. Decoders round the inverse cosine transform and the scaling each in its own way.
DECODED = Bounds(0.5, 4.0)
# In standard deviations: arrays are neither decoded nor scaled, but a text format may write few digits.
EXACT = Bounds(1e-3, 1e-3)
# Levels on the average, where files are decoded by other rules for the reason that the adapter gives: libjpeg-turbo
# without its interpolation of colours is 0.7 to 1.6 off, and more than 20 at edges; nvJPEG on an H200 0.75 and 24.
REDECODED = 2.0
SCALED = 6.0  # levels on the average, where a reader scales by another filter for the reason that its format gives


@dataclass(frozen=True)
class Samples:
    """Images as levels or deviations, float32 (samples, channels, height, width); labels, int64."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison; `problem` is "" if all samples are right."""

    mean: float
    most: float
    wrong_labels: int
    missing: int  # of the plain source's samples
    problem: str


def compare(delivered: Samples, true: Samples, bounds: Bounds, order: list[int] | None = None) -> Comparison:
    """Match the samples and compare pixels, labels and completeness; with `order`, the order too."""
    if delivered.images.shape[1:] != true.images.shape[1:]:
        problem = f"delivers images of {delivered.images.shape[1:]}, not of {true.images.shape[1:]}"
        return Comparison(0.0, 0.0, 0, len(true.labels), problem)
    match = nearest(delivered.images, true.images)
    mean, most = off(delivered.images, true.images[match])
    wrong = int((delivered.labels != true.labels[match]).sum())
    absent = len(set(range(len(true.labels))) - set(match.tolist()))
    problem = ""
    if not (mean <= bounds.mean and most <= bounds.most):
        problem = f"pixels differ by {mean:.3g} on the average, {most:.3g} at most{_reversed(delivered, true, bounds)}"
    elif wrong:
        problem = f"{wrong} of {len(match)} labels are wrong"
    elif absent:
        problem = f"{absent} of {len(true.labels)} samples did not come in the first epoch"
    elif order is not None and match.tolist() != order[: len(match)]:
        problem = "samples come in another order than asked for"
    return Comparison(mean, most, wrong, absent, problem)


def nearest(images: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Return for each image the index of the nearest one among the others."""
    flat, others = images.reshape(len(images), -1), among.reshape(len(among), -1)
    centre = others.mean(axis=0)
    flat, others = flat - centre, others - centre
    # |a - b|^2 without |a|^2, which is constant for each a
    indices: np.ndarray = ((others**2).sum(axis=1) - 2.0 * flat @ others.T).argmin(axis=1)
    return indices


def off(images: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Return the mean and the largest distance of a pixel."""
    distance = np.abs(images - true)
    return float(distance.mean()), float(distance.max())


def _reversed(delivered: Samples, true: Samples, bounds: Bounds) -> str:
    """Return words for the commonest error, channels in the order BGR; "" if it is not the cause."""
    turned = delivered.images[:, ::-1]
    mean, _ = off(turned, true.images[nearest(turned, true.images)])
    return f", by {mean:.3g} with the channels reversed: it delivers BGR" if mean <= bounds.mean else ""
