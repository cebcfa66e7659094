"""NamedTuples written as JSON and read back with every type checked: the one codec of job and messages.

A field that is None is left out; NaN and infinities, which JSON lacks, are null and come back as NaN. Numbers are
Python's own: a NumPy scalar is refused. What does not fit raises a ValueError that names the field.

Oldest Python: 3.6.
"""

import functools
from typing import Any, Dict, List, Tuple, Union, get_type_hints

NAN = float("nan")
SCALARS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def to_json(value: Any) -> Any:
    """What `json` can write: NamedTuples become dictionaries."""
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_json(item) for name, item in zip(value._fields, value) if item is not None}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def from_json(kind: Any, value: Any, place: str) -> Any:
    """A value of the type `kind`; ValueError says what stands at `place` in its stead.

    Types: the scalars, Any, List, Tuple[X, ...], Dict[str, X], NamedTuples, Optional, and unions of NamedTuples that
    differ in their fields.
    """
    if kind is Any:
        return value
    if kind in SCALARS:
        return _scalar(kind, value, place)
    if hasattr(kind, "_fields"):
        return _named_tuple(kind, value, place)
    origin, arguments = kind.__origin__, kind.__args__
    if origin is Union:
        return from_json(_alternative(arguments, value), value, place)
    if origin in (dict, Dict):
        _expect(isinstance(value, dict), "an object", value, place)
        return {key: from_json(arguments[1], item, "%s[%r]" % (place, key)) for key, item in value.items()}
    if origin in (list, List, tuple, Tuple):
        _expect(isinstance(value, list), "a list", value, place)
        items = [from_json(arguments[0], item, "%s[%d]" % (place, at)) for at, item in enumerate(value)]
        return items if origin in (list, List) else tuple(items)
    raise TypeError("%s: %r is no type that this codec knows" % (place, kind))


def _scalar(kind: Any, value: Any, place: str) -> Any:
    if kind is float:
        if value is None:
            return NAN
        if type(value) is int:
            return float(value)
    _expect(type(value) is kind, SCALARS[kind], value, place)
    return value


def _named_tuple(kind: Any, value: Any, place: str) -> Any:
    _expect(isinstance(value, dict), "an object", value, place)
    types = _types(kind)
    unknown = sorted(set(value) - set(types))
    if unknown:
        raise ValueError("%s: unknown field %r; there are %s" % (place, unknown[0], ", ".join(types)))
    missing = [name for name in types if name not in value and name not in kind._field_defaults]
    if missing:
        raise ValueError("%s: the field %r is missing" % (place, missing[0]))
    return kind(**{name: from_json(types[name], item, "%s.%s" % (place, name)) for name, item in value.items()})


def _alternative(kinds: Tuple[Any, ...], value: Any) -> Any:
    """The type of a union that is meant: the NamedTuple that has all fields of the value; else the first one."""
    fitting = [kind for kind in kinds if isinstance(value, dict) and set(value) == set(getattr(kind, "_fields", ()))]
    return (fitting or kinds)[0]


def _expect(fits: bool, expected: str, value: Any, place: str) -> None:
    if not fits:
        given = "null" if value is None else "%s (%s)" % (repr(value)[:80], type(value).__name__)
        raise ValueError("%s: %s is expected, not %s" % (place, expected, given))


@functools.lru_cache(maxsize=None)
def _types(kind: Any) -> Dict[str, Any]:
    """A NamedTuple's fields with their types."""
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind._fields}
