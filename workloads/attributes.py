"""What a layer's attribute may be: a network may come from anybody's file.

Standard library only.
"""

from typing import Any, Callable, Dict, Tuple

MOST = 10**9  # of anything that is counted
INITIALISERS = {"constant": "value", "uniform": "bound", "gaussian": "std", "xavier": "", "he": "", "he_fan_out": ""}


def whole(value: Any, least: int = 1) -> bool:
    """Whether it is a whole number of at least so much, and no more than anybody has."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def number(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e30


def flag(value: Any) -> bool:
    """Whether it is true or false."""
    return isinstance(value, bool)


def share(value: Any) -> bool:
    """Whether it is from 0 to less than 1."""
    return number(value) and 0 <= value < 1


def initialisers(value: Any) -> bool:
    """Whether it says of each role which of INITIALISERS it has, with what that takes."""
    return isinstance(value, dict) and all(map(_initialiser, value.values()))


def _initialiser(value: Any) -> bool:
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in INITIALISERS:
        return False
    takes = INITIALISERS[kind]
    return set(value) == ({"kind", takes} if takes else {"kind"}) and (not takes or number(value[takes]))


Rule = Tuple[Callable[[Any], bool], str]
COUNT: Rule = (whole, "a whole number from 1")
FLAG: Rule = (flag, "true or false")
NUMBER: Rule = (number, "a number")
SHARE: Rule = (share, "a number from 0 to less than 1")
RULES: Dict[str, Rule] = {
    "out": COUNT,
    "kernel": COUNT,
    "stride": COUNT,
    "groups": COUNT,
    "size": COUNT,
    "pad": (lambda value: whole(value, 0), "a whole number from 0"),
    "bias": FLAG,
    "ceil": FLAG,
    "count_padding": FLAG,
    "alpha": NUMBER,
    "beta": NUMBER,
    "k": NUMBER,
    "eps": (lambda value: number(value) and value > 0, "a number above 0"),
    "momentum": SHARE,
    "rate": SHARE,
    "init": (initialisers, "an initialiser for each role: {'kind': one of %s}" % ", ".join(sorted(INITIALISERS))),
}


def problem(name: str, value: Any) -> str:
    """What is wrong with an attribute; "" when nothing is."""
    fits, wanted = RULES[name]
    return "" if fits(value) else "%s = %s; it wants %s" % (name, repr(value)[:80], wanted)
