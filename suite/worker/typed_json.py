"""NamedTuples written as JSON and read back with every type checked: the one codec of jobs, messages and markers.

A field that is None is omitted; NaN and infinities, which JSON lacks, are null and come back as NaN. Whole
numbers are Python's own: NumPy's are refused. A value that does not fit raises a ValueError that names the field.
"""

import functools
import json
import os
import re
import time
from typing import Any, Dict, List, Tuple, Union, get_type_hints

NAN = float("nan")
MARKER = 1 << 24  # bytes: the marker of a packed set names each of its files
SCALARS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def to_json(value: Any) -> Any:
    """Convert a value to types that `json` can write: NamedTuples become dictionaries."""
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_json(item) for name, item in zip(value._fields, value) if item is not None}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def from_json(kind: Any, value: Any, place: str) -> Any:
    """Return a value of the type `kind`; ValueError names `place` and the value that does not fit.

    Types: the scalars, Any, List, Tuple, Dict[str, X], NamedTuples, Optional, unions of NamedTuples that differ in
    their fields, and classes that have `to_dict` and `from_dict`.
    """
    if kind is Any:
        return value
    if kind in SCALARS:
        return _scalar(kind, value, place)
    if hasattr(kind, "_fields"):
        return _named_tuple(kind, value, place)
    if hasattr(kind, "from_dict"):
        return _own_form(kind, value, place)
    origin = kind.__origin__
    arguments = kind.__args__
    if origin is Union:
        # The NamedTuple of exactly the value's fields is meant; else the first type.
        fitting = [
            one for one in arguments if isinstance(value, dict) and set(value) == set(getattr(one, "_fields", ()))
        ]
        return from_json((fitting or arguments)[0], value, place)
    if origin in (dict, Dict):
        _expect(isinstance(value, dict), "an object", value, place)
        return {key: from_json(arguments[1], item, f"{place}[{key!r}]") for key, item in value.items()}
    if origin in (list, List, tuple, Tuple):
        _expect(isinstance(value, list), "a list", value, place)
        kinds = arguments[:1] * len(value) if origin in (list, List) or arguments[-1] is Ellipsis else arguments
        _expect(len(kinds) == len(value), f"a list of {len(kinds)}", value, place)
        items = [from_json(each, item, f"{place}[{at}]") for at, (each, item) in enumerate(zip(kinds, value))]
        return items if origin in (list, List) else tuple(items)
    raise TypeError(f"{place}: {kind!r} is no type that this codec knows")


def load(kind: Any, path: str, largest: int = MARKER) -> Any:
    """Return a JSON file's content, of the type `kind`; OSError if it cannot be read, ValueError names file and field.

    Files larger than `largest` bytes are refused, since parsed JSON can take many times its size.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ValueError(f"{path} is no regular file")  # opening a pipe would wait for ever
    with open(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > largest:
            raise ValueError(f"{path} has {size} bytes, more than any that was written")
        try:
            content = json.load(stream)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is no JSON: {error}")
    return from_json(kind, content, path)


def store(value: Any, path: str) -> None:
    """Write a NamedTuple to a file, which is complete or does not exist."""
    with open(f"{path}.partial", "w") as stream:
        json.dump(to_json(value), stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(f"{path}.partial", path)


def in_words(kind: Any) -> str:
    """Return a type's name in words: "exchange times" for ExchangeTimes."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


class LineCodec:
    """A codec of messages of several NamedTuples as lines of JSON: `type`, `time_s`, and the message's fields."""

    def __init__(self, union: Any) -> None:
        """`union` is the Union of the types; each has its own name, in words, as `type`."""
        self.types = {in_words(kind): kind for kind in union.__args__}

    @staticmethod
    def name_of(message: Any) -> str:
        """Return a message's `type`: "hello", "exchange times", ..."""
        return in_words(type(message))

    def encode(self, message: Any) -> str:
        """Return one line without its end; ValueError names a field with a value that its definition does not allow.

        `time_s` is now, in seconds since the epoch, unless the message has a field of that name.
        """
        name = self.name_of(message)
        content = to_json(message)
        from_json(type(message), content, name)
        return json.dumps(dict({"time_s": time.time()}, type=name, **content))

    def decode(self, line: Union[str, bytes]) -> Any:
        """Return the message of a line; ValueError names the problem: an unknown type or field is an error, too."""
        content = json.loads(line)
        name = content.pop("type", None) if isinstance(content, dict) else None
        if not isinstance(name, str) or name not in self.types:
            raise ValueError(f"no message of a known type: {repr(line)[:80]}")
        kind = self.types[name]
        if "time_s" not in kind._fields:
            content.pop("time_s", None)
        return from_json(kind, content, name)


def _scalar(kind: Any, value: Any, place: str) -> Any:
    if kind is float:
        if value is None:
            return NAN
        if isinstance(value, float) or type(value) is int:
            return float(value)
    # A framework's own kind of string, such as its version, is a string; a bool is no number.
    fits = isinstance(value, str) if kind is str else type(value) is kind
    _expect(fits, SCALARS[kind], value, place)
    return value


def _named_tuple(kind: Any, value: Any, place: str) -> Any:
    _expect(isinstance(value, dict), "an object", value, place)
    types = _types(kind)
    unknown = sorted(set(value) - set(types))
    if unknown:
        raise ValueError(f"{place}: unknown field {unknown[0]!r}; there are {', '.join(types)}")
    missing = [name for name in types if name not in value and name not in kind._field_defaults]
    if missing:
        raise ValueError(f"{place}: the field {missing[0]!r} is missing")
    return kind(**{name: from_json(types[name], item, f"{place}.{name}") for name, item in value.items()})


def _own_form(kind: Any, value: Any, place: str) -> Any:
    _expect(isinstance(value, dict), "an object", value, place)
    try:
        return kind.from_dict(value)
    except ValueError as error:
        raise ValueError(f"{place}: no {kind.__name__}: {error}")


def _expect(fits: bool, expected: str, value: Any, place: str) -> None:
    if not fits:
        given = "null" if value is None else f"{repr(value)[:80]} ({type(value).__name__})"
        raise ValueError(f"{place}: {expected} is expected, not {given}")


@functools.lru_cache(maxsize=None)
def _types(kind: Any) -> Dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind._fields}
