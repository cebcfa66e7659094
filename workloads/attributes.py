"""The values that a layer's attributes may have: a network may come from any user's file.

Standard library only.
"""

from typing import Any, Callable, NamedTuple

MAX_COUNT = 10**9
INITIALISERS = {"constant": "value", "uniform": "bound", "gaussian": "std", "xavier": "", "he": "", "he_fan_out": ""}
REQUIRED = object()  # the default of an attribute without one


def whole(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_COUNT


def number(value: Any) -> bool:
    """Check for a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e30


def _initialiser(value: Any) -> bool:
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in INITIALISERS:
        return False
    takes = INITIALISERS[kind]
    return set(value) == ({"kind", takes} if takes else {"kind"}) and (not takes or number(value[takes]))


Attribute = NamedTuple("Attribute", [("fits", Callable[[Any], bool]), ("wanted", str), ("default", Any)])


def count(default: Any = REQUIRED) -> Attribute:
    return Attribute(whole, "a whole number from 1", default)


def padding() -> Attribute:
    return Attribute(lambda value: whole(value, 0), "a whole number from 0", 0)


def flag(default: bool) -> Attribute:
    return Attribute(lambda value: isinstance(value, bool), "true or false", default)


def real(default: float) -> Attribute:
    return Attribute(number, "a number", default)


def positive(default: float) -> Attribute:
    return Attribute(lambda value: number(value) and value > 0, "a number above 0", default)


def share(default: Any = REQUIRED) -> Attribute:
    return Attribute(lambda value: number(value) and 0 <= value < 1, "a number from 0 to less than 1", default)


def initialisers() -> Attribute:
    """Return the attribute `init`: {role: {"kind": one of INITIALISERS, and the value that it takes}}."""
    return Attribute(
        lambda value: isinstance(value, dict) and all(map(_initialiser, value.values())),
        "an initialiser for each role: {'kind': one of %s}" % ", ".join(sorted(INITIALISERS)),
        {},
    )
