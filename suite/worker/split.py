"""A data set cut in two: what is learnt from, and what is held out to tell how well."""

from typing import List, Tuple

import numpy as np

from suite.worker.sources import Source


class Subset(Source):
    """Some samples of a source, under indices of its own."""

    def __init__(self, source: Source, indices: List[int], what: str) -> None:
        """`indices` into the source; `what` it is, for its name."""
        self._source, self._indices = source, indices
        self.classes, self.photographs = source.classes, source.photographs
        if source.files is not None:
            self.files = [source.files[index] for index in indices]
        if source.arrays is not None:
            self.arrays = source.arrays[0][indices], source.arrays[1][indices]
        self.name = "%s, %d samples to %s" % (source.name, len(indices), what)

    def __len__(self) -> int:
        return len(self._indices)

    def sample(self, index: int) -> Tuple[np.ndarray, int]:
        return self._source.sample(self._indices[index])

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[np.ndarray, int]:
        return self._source.augmented(self._indices[index], stream)

    def paths(self) -> List[str]:
        return self._source.paths()


def split(source: Source, fraction: float) -> Tuple[Subset, Subset]:
    """(to learn from, to test with): the same cut on every machine, in every framework.

    The first part of a fixed shuffle is held out. ValueError when one half would be empty.
    """
    held_out = int(round(len(source) * fraction))
    if not 0 < held_out < len(source):
        raise ValueError(
            "holding out %g of %s leaves one half empty (%d of %d samples)"
            % (fraction, source.name, held_out, len(source))
        )
    order = np.random.RandomState(0).permutation(len(source)).tolist()
    return Subset(source, sorted(order[held_out:]), "learn from"), Subset(source, sorted(order[:held_out]), "test with")
