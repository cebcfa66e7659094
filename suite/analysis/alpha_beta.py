"""Latency and bandwidth of a link, fitted to times over sizes: t(s) = alpha + beta * s.

Relative errors are made least: weights 1/t, so that the microseconds of a small message
count as much as the seconds of a large one (Hockney's model; unweighted, the largest
messages alone would decide, and alpha would be noise).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suite.analysis.stats import LARGEST_ERROR

LEAST = 3  # sizes: two are met exactly, whatever they are


@dataclass(frozen=True)
class Fit:
    """The model, and how far it is from what was measured."""

    alpha: float  # seconds
    beta: float  # seconds a byte
    alpha_error: float  # standard errors
    beta_error: float
    error: float  # root mean square of the relative residuals
    worst: float  # the largest relative residual

    @property
    def describes(self) -> bool:
        """Whether what was measured is near a line at all: else neither parameter is determined."""
        return self.error <= LARGEST_ERROR

    @property
    def tells_latency(self) -> bool:
        """Whether alpha is determined: of large messages alone it is a small difference of large times."""
        return self.describes and self.alpha > 0 and self.alpha_error <= LARGEST_ERROR * self.alpha

    @property
    def tells_bandwidth(self) -> bool:
        """Whether beta is determined: of small messages alone it is not."""
        return self.describes and self.beta > 0 and self.beta_error <= LARGEST_ERROR * self.beta

    @property
    def tells(self) -> bool:
        """Whether both are determined: else its line is not drawn."""
        return self.tells_latency and self.tells_bandwidth

    def seconds(self, size: float) -> float:
        """Of a message of so many bytes."""
        return self.alpha + self.beta * size


def fitted(sizes: Sequence[float], seconds: Sequence[float]) -> Fit | None:
    """The fit of positive times; None of fewer than three different sizes.

    Neither parameter becomes negative: where the best fit would have it so, it is 0. Its error is that of the free
    fit: an alpha of 0 is what noise made of one that large messages do not show, not a link without latency.
    """
    if len(set(sizes)) < LEAST:
        return None
    times = np.asarray(seconds, dtype=np.float64)
    rows = np.stack([1.0 / times, np.asarray(sizes, dtype=np.float64) / times], axis=1)
    # Columns of one scale: sizes reach 1e8, and the normal equations square that.
    scale = np.linalg.norm(rows, axis=0)
    scaled = rows / scale
    ones = np.ones(len(times))
    free, *_ = np.linalg.lstsq(scaled, ones, rcond=None)
    # Both, unless one of them would become negative.
    used = [0, 1] if (free >= 0).all() else [int(free.argmax())]
    found, *_ = np.linalg.lstsq(scaled[:, used], ones, rcond=None)
    values = np.zeros(2)
    values[used] = found / scale[used]
    residuals = rows @ values - 1.0
    spread = float(np.sum((scaled @ free - 1.0) ** 2)) / (len(times) - 2)
    errors = np.sqrt(spread * np.diag(np.linalg.inv(scaled.T @ scaled))) / scale
    return Fit(
        alpha=float(values[0]),
        beta=float(values[1]),
        alpha_error=float(errors[0]),
        beta_error=float(errors[1]),
        error=float(np.sqrt(np.mean(residuals**2))),
        worst=float(np.abs(residuals).max()),
    )
