"""Rates of equal rows measured in rounds on a noisy machine, for tests of what a comparison concludes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rounds = dict[str, dict[int, float]]  # samples/s by row and round
SMOOTHING = 0.3  # of a row's standard deviation


def even(random: np.random.Generator, rows: int, rounds: int, scatter: Sequence[float] = (0.02,)) -> Rounds:
    """Processes scatter, each row by its own share in turn; rounds drift together by 5 %."""
    own = np.resize(scatter, rows)[:, np.newaxis] * random.normal(0, 1, (rows, rounds))
    return _named(own + random.normal(0, 0.05, rounds))


def visited(random: np.random.Generator, rows: int, rounds: int, switches: float = 0.1) -> Rounds:
    """Processes scatter by 1.5 %; a background load comes, goes or changes between one process and the next.

    With the chance `switches` the machine's state is drawn anew: left alone, or slowed down by 5 to 35 %.
    A busy two-core machine showed such states, which lasted for 5 to 20 processes of a second.
    """
    slots = rows * rounds
    states = np.where(random.random(slots + 1) < 0.5, 0.0, random.uniform(0.05, 0.35, slots + 1))
    state = states[np.cumsum(random.random(slots) < switches)]
    return _named(random.normal(0, 0.015, (rows, rounds)) - np.log1p(state).reshape(rounds, rows).T)


def in_turns(random: np.random.Generator, rows: int, rounds: int, switches: float = 0.05, parts: int = 8) -> Rounds:
    """The same, where the rows of a round time their parts in turns, forth and back, half a second each."""
    slots = rounds * parts * rows
    states = np.where(random.random(slots + 1) < 0.5, 0.0, random.uniform(0.05, 0.35, slots + 1))
    slowed = 1 + states[np.cumsum(random.random(slots) < switches)].reshape(rounds, parts, rows)
    slowed[:, 1::2] = slowed[:, 1::2, ::-1]
    return _named(random.normal(0, 0.015, (rows, rounds)) - np.log(slowed.mean(axis=1)).T)


def drawn(random: np.random.Generator, rows: int, rounds: int, deviations: NDArray[np.float64]) -> Rounds:
    """Logarithms of real processes' rates over their row's median, drawn with replacement."""
    return _named(random.choice(deviations, (rows, rounds)))


def dealt(random: np.random.Generator, rows: int, rounds: int, processes: Sequence[NDArray[np.float64]]) -> Rounds:
    """One real row's processes in another order, dealt out to rows: equal ones, however a row may deviate.

    Some row must have so many processes.
    """
    many = [own for own in processes if len(own) >= rows * rounds]
    own = random.permutation(many[random.integers(len(many))])
    return _named(own[: rows * rounds].reshape(rows, rounds))


def mixed(random: np.random.Generator, rows: int, rounds: int, processes: Sequence[NDArray[np.float64]]) -> Rounds:
    """Each row is another real one: its processes, drawn with replacement and smoothed, since equal speeds are rare.

    B. W. Silverman, G. A. Young, "The bootstrap: to smooth or not to smooth?", 1987.
    """
    chosen = [processes[at] for at in random.choice(len(processes), rows, replace=len(processes) < rows)]
    smoothed = [random.choice(own, rounds) + random.normal(0, SMOOTHING * own.std(), rounds) for own in chosen]
    return _named(np.array(smoothed) / np.hypot(1, SMOOTHING))


def with_one_faster(rates: Rounds, row: str, factor: float) -> Rounds:
    return {
        name: {at: rate * (factor if name == row else 1) for at, rate in own.items()} for name, own in rates.items()
    }


def _named(logarithms: NDArray[np.float64]) -> Rounds:
    rates = 100 * np.exp(logarithms)
    return {f"row {index}": dict(enumerate(map(float, own))) for index, own in enumerate(rates)}
