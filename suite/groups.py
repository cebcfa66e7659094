"""Things by what they have in common."""

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The things by their key; keys, and things of one key, stay in order."""
    found: dict[K, list[T]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return found


class Refused(NamedTuple):
    """A case without a result, and why."""

    label: str
    of: str  # the adapter or the backend, which names several cases together
    outcome: str
    reason: str
    cases: int = 1


def once_per_reason(refused: Iterable[Refused]) -> list[Refused]:
    """What several cases share stands once: their `label` is then such as "pytorch, mxnet (12 cases)"."""
    return [_together(each) for each in grouped(refused, lambda one: (one.outcome, one.reason)).values()]


def _together(refused: list[Refused]) -> Refused:
    if len(refused) == 1:
        return refused[0]
    label = f"{', '.join(dict.fromkeys(one.of for one in refused))} ({len(refused)} cases)"
    return refused[0]._replace(label=label, cases=len(refused))
