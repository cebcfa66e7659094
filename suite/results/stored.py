"""Reads and writes the files of a run folder: one format, checked once; a misfit is one sentence with its remedy."""

import hashlib
import json
import math
import re
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from stagebench.suite.errors import RequestError, StagebenchError, StoreError
from stagebench.suite.files import disk
from stagebench.suite.text import CODES, cut, shown, without_codes
from stagebench.suite.worker.typed_json import to_json

Part = TypeVar("Part", bound=BaseModel)
Format = Literal[5]
FORMAT: Format = 5  # of every file of a run folder; open to changes until release 1.0.0
# The beginning of a file that names the present format first, as written files do.
TODAYS = re.compile(rf'{{\s*"format":\s*{FORMAT},'.encode())


class Stored(BaseModel):
    """A part of a file in a run folder; it can be made from any object with attributes of the same names."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, from_attributes=True, revalidate_instances="never", allow_inf_nan=False
    )

    def but(self, **changes: Any) -> Self:
        """Return a copy with these fields changed, validated."""
        return type(self).model_validate({**dict(self), **changes})


class Sealed(Stored):
    """A whole file of a run folder, with the digest of its text."""

    format: Format = FORMAT
    digest: str = ""  # of the file's text with "" here

    @property
    def text(self) -> str:
        """The text of its file, with its digest."""
        return sealed(self.model_copy(update={"digest": ""}).model_dump_json(indent=1) + "\n")


class AsFields:
    """Marks a worker's NamedTuple within a stored type: checked like one, and written as an object of its fields."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Return the NamedTuple's schema; pydantic calls this method."""
        schema = handler(source)
        before = {"type": "function-before", "function": {"type": "no-info", "function": _fields}, "schema": schema}
        written = {"type": "function-plain", "function": to_json}
        return {"type": "json-or-python", "json_schema": schema, "python_schema": before, "serialization": written}


def _fields(value: Any) -> Any:
    """Return a message's fields, where a number that is not finite is None; anything else as it is."""
    return to_json(value) if hasattr(value, "_fields") else value


T = TypeVar("T")
Kept = Annotated[T, AsFields()]


# The largest files of a run folder, in bytes.
LARGEST = 1 << 28  # a record of an hour of half-millisecond steps has 100 MB
CASES = 1 << 26  # cases.json: 30,000 cases
SMALL = 1 << 24  # other files: a proof of a network of a thousand layers has 1 MB

MEMORY = 1_000_000_000  # bytes of memory that a file's values may take: those of a record of 230 MB
DIGITS = 30  # of a whole number, with its sign

ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def json_ready(values: dict[str, Any]) -> dict[str, Any]:
    """Convert values for `json`: dataclasses, NamedTuples and stored types become objects of their fields."""
    return {name: _ready(value) for name, value in values.items()}


def _ready(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _ready(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, BaseModel):
        return _ready(dict(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _ready(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, dict):
        return {key: _ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_ready(item) for item in value]
    return ANYTHING.dump_python(value, mode="json")


# A file's name without its folder: no such name can lead to another folder.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
# A loss, or a distance: None (null in the file) when it was infinite or no number.
Finite = Annotated[
    float | None,
    BeforeValidator(lambda value: None if isinstance(value, float) and not math.isfinite(value) else value),
]


def text_of(path: Path, remedy: str, largest: int = LARGEST, kind: type[StagebenchError] = StoreError) -> bytes:
    """Return a file's text; an error of the `kind` if it cannot be read, or is too large (see `outsized`)."""
    with disk(f"cannot read {path}", remedy, kind):
        if not path.is_file():  # reading from a pipe would never end
            raise kind(f"{path} is no file", remedy)
        if (size := path.stat().st_size) > largest:
            raise kind(f"{path} has {size} bytes, more than any that was written", remedy)
        text = path.read_bytes()
    if outsized(text, largest):
        raise kind(f"{path} has more values than any that was written", remedy)
    return text


class Outsized(StoreError):
    """A record is too large to be read again."""


def readable(text: str) -> str:
    """Return the text unchanged; Outsized if `text_of` would refuse it."""
    written = text.encode()
    if outsized(written, LARGEST):
        raise Outsized(f"it has {len(written)} bytes, more than are read again", "lower `steps`, `seconds` or `epochs`")
    return text


def outsized(text: bytes, largest: int) -> bool:
    """Return whether a JSON text has more bytes than `largest`, or its values may take more than MEMORY.

    A rough estimate: an object takes 240 bytes, any other value 64.
    """
    if len(text) > largest:
        return True
    if (2 + 240) * len(text) <= MEMORY:  # whatever its values are
        return False
    values = 64 * (text.count(b",") + text.count(b"[")) + 240 * text.count(b"{")
    return 2 * len(text) + values > MEMORY


def object_of(text: bytes, path: Path, remedy: str) -> dict[str, Any]:
    """Parse a file's text as a JSON object; StoreError if it is none, or has a very long whole number."""
    try:
        found = json.loads(text, parse_constant=_refused, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not readable JSON ({error})", remedy) from error
    if not isinstance(found, dict):
        raise StoreError(f"{path} holds no JSON object", remedy)
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON's")


def _whole(digits: str) -> int:
    """Parse a whole number; ValueError for more than DIGITS characters, since divisions of huge numbers overflow."""
    if len(digits) > DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def parsed(kind: type[Part], text: bytes | str, path: Path, remedy: str) -> Part:
    """Parse JSON as a value of `kind`; StoreError names the file, the first field that does not fit, and the remedy."""
    try:
        return kind.model_validate_json(text, strict=True)  # strict: no text is converted to a number
    except ValidationError as error:
        raise StoreError(f"{path}: {misfit(error)}", remedy) from error


def misfit(error: ValidationError) -> str:
    """Return the first field that does not fit, the reason, and the number of further ones, in words."""
    problems = error.errors(include_url=False, include_input=False)
    first = problems[0]
    place = cut(".".join(map(str, first["loc"])), 200) or "the whole"
    others = f", and {len(problems) - 1} more like it" if len(problems) > 1 else ""
    return f"{place}: {first['msg']}{others}"


def read(path: Path, kind: type[Part], remedy: str, largest: int = LARGEST) -> Part:
    """Read a file of a run folder; errors as of `understood`."""
    return understood(text_of(path, remedy, largest), path, kind, remedy)


def understood(text: bytes, path: Path, kind: type[Part], remedy: str, free: bool = False) -> Part:
    """Parse a file's text, without control codes in its strings.

    `free`: whole numbers may have any length, as in what an adapter notes. StoreError names the file, the first field
    that does not fit, and the remedy; RequestError is for a run.json of another format.
    """
    try:
        if coded(text) or (not free and LONG.search(text)):
            text = json.dumps(cleaned(object_of(text, path, remedy))).encode()
        if TODAYS.match(text):
            with suppress(StoreError):  # the message of `object_of` is better
                return parsed(kind, text, path, remedy)
        check_format(object_of(text, path, remedy).get("format"), path, remedy)
        return parsed(kind, text, path, remedy)
    except RecursionError:
        raise StoreError(f"{path} has values within values within values, too many", remedy) from None


def check_format(written: Any, path: Path, remedy: str) -> None:
    """Refuse a file of another format than this stagebench's; a run of an older one has to be measured again."""
    if written == FORMAT:
        return
    named = "names no format" if written is None else f"has format {shown(written)}"
    kind: type[StagebenchError] = StoreError
    if path.name == "run.json":
        later = isinstance(written, int) and written > FORMAT
        remedy = "read it with the version that wrote it" if later else "measure it again, into a new folder"
        kind = RequestError
    raise kind(f"{path} {named}, and this stagebench reads format {FORMAT}", remedy)


ESCAPES = (b"\\u", b"\\b", b"\\f", b"\\r")  # JSON's, of control characters
LONG = re.compile(rb"[ :\[,-][1-9][0-9]{%d}" % DIGITS)  # a whole number that stagebench never writes


def coded(text: bytes) -> bool:
    """Return whether a JSON text may contain characters that `without_codes` removes; nearly no file does."""
    if b"\\" in text and any(escape in text for escape in ESCAPES):  # one byte is found ten times as fast as two
        return True
    if text.isascii():
        return b"\x7f" in text
    return CODES.search(text.decode(errors="replace")) is not None


def cleaned(value: Any) -> Any:
    """Return a JSON value whose strings, keys too, are fit for a terminal and a page."""
    if isinstance(value, dict):
        return {without_codes(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    return without_codes(value) if isinstance(value, str) else value


UNSEALED = b'"digest": ""'  # a sealed text's first field of that name while its digest is computed


def sealed(text: str) -> str:
    """Return a JSON text that contains `"digest": ""`, with its own digest filled in there."""
    digest = _digest(text.encode())
    return text.replace(UNSEALED.decode(), f'"digest": "{digest}"', 1)


def intact(text: bytes, digest: str) -> bool:
    """Return whether a text is unchanged since `sealed` wrote it with this digest."""
    return _digest(text.replace(f'"digest": "{digest}"'.encode(), UNSEALED, 1)) == digest


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]
