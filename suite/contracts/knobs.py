"""Knobs: an adapter's own settings, declared as data. What a plan may ask of one follows from its declaration."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from suite.contracts.deep import DEEP


@dataclass(frozen=True)
class Need:
    """What a knob's values need elsewhere in the case: without it they would do nothing, or cannot be done."""

    __pydantic_config__ = DEEP

    name: str  # another knob, "device" or "precision"
    values: tuple[Any, ...]  # of these one
    why: str  # a clause by itself: "NCCL exchanges between GPUs only"
    of: tuple[Any, ...] = ()  # the knob's values that need it; empty: all but its default


@dataclass(frozen=True)
class Knob:
    """One setting of an adapter."""

    __pydantic_config__ = DEEP

    values: tuple[Any, ...] | type  # the values allowed, or a type such as int; a type may stand among values
    default: Any  # the value of a case whose plan does not name the knob
    help: str
    strategies: tuple[str, ...] = ()  # those that it changes; empty: all
    least: float | None = None  # of its numbers: the smallest one allowed
    most: float | None = None  # likewise the largest
    above: float | None = None  # likewise what each must be larger than
    needs: tuple[Need, ...] = ()
    relaxing: Collection[Any] = ()  # values that take from a strategy that it is synchronous
    mpi: tuple[Any, str] | None = None  # a value with which ranks meet by MPI, and the library

    def problem(self, value: Any) -> str | None:
        """Why a value is not allowed, or None; a clause that follows the knob's name."""
        allowed = (self.values,) if isinstance(self.values, type) else self.values
        if not any(_fits(value, each) for each in allowed):
            if isinstance(self.values, type):
                return f"wants {self.values.__name__}, not {value!r}"
            words = [each.__name__ if isinstance(each, type) else repr(each) for each in allowed]
            return f"is one of {', '.join(words)}, not {value!r}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._out_of_bounds(value)
        return None

    def _out_of_bounds(self, value: float) -> str | None:
        if self.least is not None and value < self.least:
            return f"is {value}, and the least is {self.least}: {self.help}"
        if self.most is not None and value > self.most:
            return f"is {value}, and the most is {self.most}: {self.help}"
        if self.above is not None and value <= self.above:
            return f"is {value}, and must be above {self.above}: {self.help}"
        return None

    def unmet(self, value: Any, case: Mapping[str, Any]) -> str | None:
        """What a value needs and a case (its knobs, "device" and "precision") has not, or None; follows the value."""
        for need in self.needs:
            if (value in need.of if need.of else value != self.default) and case[need.name] not in need.values:
                return f"needs {need.name} = {' or '.join(map(repr, need.values))}: {need.why}"
        return None


def values(knobs: Mapping[str, Knob], asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Every knob's value: what a plan asks for, else the default."""
    return {name: (asked or {}).get(name, knob.default) for name, knob in knobs.items()}


def refusal(adapter: str, knobs: Mapping[str, Knob], strategy: str, asked: Mapping[str, Any]) -> str | None:
    """Why a case cannot have these knobs, or None: a value that is not allowed, or one that would change nothing."""
    for name, value in asked.items():
        knob = knobs[name]
        problem = knob.problem(value)
        if problem:
            return f"{adapter}'s knob {name} {problem}"
        if knob.strategies and strategy not in knob.strategies and value != knob.default:
            owners = " and ".join(f"the strategy {owner!r}" for owner in knob.strategies)
            return f"the knob {name!r} belongs to {owners} and changes nothing under {strategy!r}"
    return None


def unmet(knobs: Mapping[str, Knob], case: Mapping[str, Any]) -> str | None:
    """The first need of a knob's value that a case (all its knobs, "device" and "precision") does not meet, or None."""
    for name, knob in knobs.items():
        problem = knob.unmet(case[name], case)
        if problem:
            return f"{name} = {case[name]!r} {problem}"
    return None


def _fits(value: Any, allowed: Any) -> bool:
    if isinstance(allowed, type):  # to Python True is an int; here it is not
        return isinstance(value, allowed) and not (allowed is not bool and isinstance(value, bool))
    return bool(value == allowed)
