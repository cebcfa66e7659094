"""Knobs: an adapter's own settings, declared as data, against which plans are checked."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from stagebench.suite.contracts.deep import DEEP


@dataclass(frozen=True)
class Need:
    """A requirement of a knob's values: without it they would have no effect, or are impossible.

    A case that does not meet it is `unsupported`.
    """

    __pydantic_config__ = DEEP

    name: str  # the required setting: another knob of the adapter, "device" or "precision"
    values: tuple[Any, ...]  # its values that meet the requirement
    why: str  # the reason, a complete clause: "NCCL exchanges between GPUs only"
    of: tuple[Any, ...] = ()  # this knob's values that have the requirement; (): all but its default


@dataclass(frozen=True)
class Knob:
    """A setting of an adapter; plans give its value in [cases.knobs], and the trainer finds it in `Setup.knobs`."""

    __pydantic_config__ = DEEP

    values: tuple[Any, ...] | type  # the allowed values, or a type such as int; the tuple may contain types, too
    default: Any  # the value of a case whose plan does not name the knob
    help: str  # a sentence for `stagebench list`, and for messages
    strategies: tuple[str, ...] = ()  # the names of the strategies that it affects; (): all
    least: float | None = None  # the smallest number allowed
    most: float | None = None  # the largest number allowed
    above: float | None = None  # an exclusive lower bound of its numbers
    needs: tuple[Need, ...] = ()  # all have to be met
    relaxing: Collection[Any] = ()  # values with which a synchronous strategy no longer is one
    mpi: tuple[Any, str] | None = None  # (a value with which ranks meet by MPI, the library's name)

    def problem(self, value: Any) -> str | None:
        """Return why a value is not allowed, a clause that follows the knob's name; None if it is allowed."""
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
        """Return the first requirement of a value that a case does not meet, a clause that follows the value, or None.

        `case` has the values of all its knobs, "device" and "precision".
        """
        for need in self.needs:
            if (value in need.of if need.of else value != self.default) and case[need.name] not in need.values:
                return f"needs {need.name} = {' or '.join(map(repr, need.values))}: {need.why}"
        return None


def values(knobs: Mapping[str, Knob], asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the value of every knob: the one in `asked`, a plan's, or the default."""
    return {name: (asked or {}).get(name, knob.default) for name, knob in knobs.items()}


def refusal(adapter: str, knobs: Mapping[str, Knob], strategy: str, asked: Mapping[str, Any]) -> str | None:
    """Return why a case of `strategy` cannot have the knobs `asked`: a value is not allowed, or has no effect; or None.

    Every name in `asked` must be one of `knobs`.
    """
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
    """Return the first requirement of any knob's value that a case does not meet, a whole clause; None if all are met.

    `case` has the values of all its knobs, "device" and "precision".
    """
    for name, knob in knobs.items():
        problem = knob.unmet(case[name], case)
        if problem:
            return f"{name} = {case[name]!r} {problem}"
    return None


def _fits(value: Any, allowed: Any) -> bool:
    if isinstance(allowed, type):  # Python takes True for an int
        return isinstance(value, allowed) and not (allowed is not bool and isinstance(value, bool))
    return bool(value == allowed)
