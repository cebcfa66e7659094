"""The numbers that ranks send to verify a result, and the expected results: whole numbers, so that sums are exact."""

from typing import Optional

import numpy as np

PERIOD = 1021  # a prime: no buffer size or number of ranks divides it
SHAPES = 251  # different numbers in a row, before they are made smaller
# By type: how many different numbers there are, up to which whole numbers are exact, and half the step between two
# numbers beyond, relative. So sums are exact over 66,000 ranks in float32, 66 in float16, 36 in bfloat16.
VALUES = {"float32": 251, "float16": 31, "bfloat16": 7}
EXACT = {"float32": 1 << 24, "float16": 1 << 11, "bfloat16": 1 << 8}
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


class WrongResult(Exception):
    """A result of other numbers than expected."""


def check(
    found: np.ndarray, operation: str, count: int, rank: int, world: int, turn: int, dtype: str = "float32"
) -> None:
    """Raise WrongResult unless a rank's result is as expected, within the rounding where sums are inexact."""
    right = expected(operation, count, rank, world, turn, dtype)
    if right is None:
        return
    if found.shape != right.shape:
        raise WrongResult(
            f"{operation} of {count} numbers: rank {rank} has {found.shape!r} numbers instead of {right.shape!r}"
        )
    wrong = np.flatnonzero(~(np.abs(found - right) <= tolerance(world, dtype) * right))  # so that NaN is wrong
    if len(wrong):
        raise WrongResult(
            f"{operation} of {count} numbers: rank {rank} of {world} has {float(found[wrong[0]])!r} at place "
            f"{wrong[0]} instead of {float(right[wrong[0]])!r}, and {len(wrong)} wrong numbers in all; a speed of "
            "wrong results is none: look at the transport, or at the library's release"
        )


def tolerance(world: int, dtype: str) -> float:
    """Return the relative error that a sum over `world` ranks may have: none while it is a number of the type."""
    return 0.0 if world * VALUES[dtype] <= EXACT[dtype] else (world - 1) * ROUNDING[dtype]


def given(operation: str, count: int, rank: int, world: int, turn: int, dtype: str = "float32") -> np.ndarray:
    """Return the numbers that a rank fills in, float32.

    `turn` chooses them: a result that an earlier turn has left is wrong.
    """
    return np.resize(period(rank, turn, dtype), count // world if operation == "all-gather" else count)


def expected(
    operation: str, count: int, rank: int, world: int, turn: int, dtype: str = "float32"
) -> Optional[np.ndarray]:
    """Return the result that a rank must have; None if it has none."""
    if operation == "point-to-point":
        return np.resize(period(0, turn, dtype), count) if rank in (0, world - 1) else None
    if operation == "broadcast":
        return np.resize(period(0, turn, dtype), count)
    every = [period(each, turn, dtype) for each in range(world)]
    share = count // world
    if operation == "all-gather":
        return np.concatenate([np.resize(each, share) for each in every])
    own = (np.arange(share) + rank * share) % PERIOD  # places of this rank's share
    if operation == "all-to-all":
        return np.concatenate([each[own] for each in every])
    total: np.ndarray = sum(every)  # type: ignore[assignment]
    return np.resize(total, count) if operation == "all-reduce" else total[own]


def period(rank: int, turn: int, dtype: str = "float32") -> np.ndarray:
    """Return the numbers that a rank repeats: whole, from 1 on."""
    return ((np.arange(PERIOD) * (rank + 2) + 31 * turn) % SHAPES % VALUES[dtype] + 1).astype(np.float32)
