"""What is read from a run folder is validated once, here; what does not fit is one sentence with its remedy."""

import hashlib
import json
import math
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from suite.errors import StoreError
from suite.files import disk
from suite.suggest import cut

Part = TypeVar("Part", bound=BaseModel)


class Stored(BaseModel):
    """A part of a file in a run folder; it can be made of whatever has attributes of the same names."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, from_attributes=True, revalidate_instances="never", allow_inf_nan=False
    )

    def but(self, **changes: Any) -> Self:
        """The same with some values changed, validated."""
        return type(self).model_validate({**dict(self), **changes})


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Bytes of a file in a run folder.
LARGEST = 1 << 28  # a record of an hour of half-millisecond steps has 100 MB
CASES = 1 << 26  # cases.json: 30,000 cases
SMALL = 1 << 24  # the others: a proof of a network of a thousand layers has 1 MB

MEMORY = 1_000_000_000  # bytes that the values of a file may take: those of a record of 230 MB
DIGITS = 30  # of a whole number, with its sign

ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def json_ready(values: dict[str, Any]) -> dict[str, Any]:
    """The same for `json`, dataclasses and stored types among the values written out field by field."""
    found: dict[str, Any] = ANYTHING.dump_python(values, mode="json")
    return found


# What a file is called by: it cannot leave its folder.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
# A loss, or a distance: None (null in the file) when it was infinite or no number.
Finite = Annotated[float | None, BeforeValidator(_finite)]


def text_of(path: Path, remedy: str, largest: int = LARGEST) -> bytes:
    """A file's text; StoreError when it cannot be read, or has more bytes than `largest`."""
    with disk(f"cannot read {path}", remedy):
        if not path.is_file():  # reading from a pipe would never end
            raise StoreError(f"{path} is no file; {remedy}")
        if (size := path.stat().st_size) > largest:
            raise StoreError(f"{path} has {size} bytes, more than any that was written; {remedy}")
        text = path.read_bytes()
    if outsized(text, largest):
        raise StoreError(f"{path} has more values than any that was written; {remedy}")
    return text


class Outsized(StoreError):
    """A record that could be written and not be read again."""


def readable(text: str) -> str:
    """The same text; Outsized when `text_of` would refuse it."""
    written = text.encode()
    if outsized(written, LARGEST):
        raise Outsized(f"it has {len(written)} bytes, more than are read again", "lower `steps`, `seconds` or `epochs`")
    return text


def outsized(text: bytes, largest: int) -> bool:
    """Whether a JSON text has more bytes than `largest`, or its values may take more than MEMORY.

    Roughly: an object takes 240 bytes, another value 64.
    """
    if len(text) > largest:
        return True
    if (2 + 240) * len(text) <= MEMORY:  # whatever its values are
        return False
    values = 64 * (text.count(b",") + text.count(b"[")) + 240 * text.count(b"{")
    return 2 * len(text) + values > MEMORY


def object_of(text: bytes, path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file's text; StoreError when it is none."""
    try:
        found = json.loads(text, parse_constant=_refused, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not readable JSON ({error}); {remedy}") from error
    if not isinstance(found, dict):
        raise StoreError(f"{path} holds no JSON object; {remedy}")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON's")


def _whole(digits: str) -> int:
    """What is longer no division takes."""
    if len(digits) > DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def parsed(kind: type[Part], text: bytes | str, path: Path, remedy: str) -> Part:
    """The JSON as that type; StoreError names the file, the first field that does not fit, and the remedy."""
    try:
        return kind.model_validate_json(text, strict=True)  # strictly: no word is turned into a number
    except ValidationError as error:
        raise StoreError(f"{path}: {misfit(error)}; {remedy}") from error


def misfit(error: ValidationError) -> str:
    """The first field that does not fit, why, and how many more there are."""
    problems = error.errors(include_url=False, include_input=False)
    first = problems[0]
    place = cut(".".join(map(str, first["loc"])), 200) or "the whole"
    others = f", and {len(problems) - 1} more like it" if len(problems) > 1 else ""
    return f"{place}: {first['msg']}{others}"


UNSEALED = b'"digest": ""'  # a sealed text's first field of that name, as the digest is taken


def sealed(text: str) -> str:
    """A JSON text that has `"digest": ""` with the digest of itself in it."""
    digest = _digest(text.encode())
    return text.replace(UNSEALED.decode(), f'"digest": "{digest}"', 1)


def intact(text: bytes, digest: str) -> bool:
    """Whether a text is as `sealed` wrote it."""
    return _digest(text.replace(f'"digest": "{digest}"'.encode(), UNSEALED, 1)) == digest


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]
