"""What ranks send when a result is to be verified, and what must come of it: whole numbers, so that sums are exact."""

from typing import Optional

import numpy as np

PERIOD = 1021  # a prime: no buffer size or number of ranks divides it
VALUES = 251  # sums over 65,000 ranks are still exact in float32


class WrongResult(Exception):
    """An operation gave other numbers than it must."""


def check(found: np.ndarray, operation: str, count: int, rank: int, world: int, turn: int) -> None:
    """WrongResult unless a rank's result is what it must be."""
    right = expected(operation, count, rank, world, turn)
    if right is None:
        return
    if found.shape != right.shape:
        raise WrongResult(
            "%s of %d numbers: rank %d has %r numbers instead of %r"
            % (operation, count, rank, found.shape, right.shape)
        )
    wrong = np.flatnonzero(found != right)
    if len(wrong):
        raise WrongResult(
            "%s of %d numbers: rank %d of %d has %r at place %d instead of %r, and %d wrong numbers in all; "
            "a speed of wrong results is none: look at the transport, or at the library's release"
            % (operation, count, rank, world, float(found[wrong[0]]), wrong[0], float(right[wrong[0]]), len(wrong))
        )


def given(operation: str, count: int, rank: int, world: int, turn: int) -> np.ndarray:
    """What a rank fills in, float32; `turn` chooses the numbers: a result that an earlier turn has left is wrong."""
    return np.resize(period(rank, turn), count // world if operation == "all-gather" else count)


def expected(operation: str, count: int, rank: int, world: int, turn: int) -> Optional[np.ndarray]:
    """What a rank's result must be; None: it has none."""
    if operation == "point-to-point":
        return np.resize(period(0, turn), count) if rank in (0, world - 1) else None
    if operation == "broadcast":
        return np.resize(period(0, turn), count)
    if operation == "all-gather":
        return np.concatenate([np.resize(period(each, turn), count // world) for each in range(world)])
    total: np.ndarray = sum(period(each, turn) for each in range(world))  # type: ignore[assignment]
    if operation == "all-reduce":
        return np.resize(total, count)
    share = count // world
    return total[(np.arange(share) + rank * share) % PERIOD]


def period(rank: int, turn: int) -> np.ndarray:
    """The numbers that a rank's repeat."""
    return ((np.arange(PERIOD) * (rank + 2) + 31 * turn) % VALUES + 1).astype(np.float32)
