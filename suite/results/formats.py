"""A file of a run folder, whatever its format: today's is checked at once, an older one is upgraded first."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from suite.errors import RequestError, StoreError
from suite.plain import CODES, without_codes
from suite.results import older
from suite.results.records import FORMAT, AnyRecord
from suite.results.stored import DIGITS, LARGEST, Part, object_of, parsed, text_of
from suite.suggest import shown

TODAYS = re.compile(rf'{{\s*"format":\s*{FORMAT},'.encode())  # how a file begins that says first that it is today's
OLDER = tuple(range(1, FORMAT))
IDENTIFIED = 3  # the format from which runs have ids, and records digests: all that have a method later than the first


def read(path: Path, kind: type[Part], upgrade: older.Upgrade, remedy: str, largest: int = LARGEST) -> Part:
    """A file of a run folder as today's type; StoreError (of run.json's format RequestError) with the remedy."""
    return understood(text_of(path, remedy, largest), path, kind, upgrade, remedy)


def identified(method: int, text: bytes) -> bool:
    """Whether a run has an id, or a record a digest, by its method and by the format that its JSON text says."""
    return method > older.METHOD or json.loads(text).get("format", 1) >= IDENTIFIED


ESCAPES = (b"\\u", b"\\b", b"\\f", b"\\r")  # JSON's, of characters that are no text
LONG = re.compile(rb"[ :\[,-][1-9][0-9]{%d}" % DIGITS)  # a whole number that is none of ours


def coded(text: bytes) -> bool:
    """Whether a JSON text may hold what `without_codes` takes out; nearly no file does, and there are thousands."""
    if b"\\" in text and any(escape in text for escape in ESCAPES):  # one byte is found ten times as fast as two
        return True
    if text.isascii():
        return b"\x7f" in text
    return CODES.search(text.decode(errors="replace")) is not None


def cleaned(value: Any) -> Any:
    """A JSON value whose texts, keys too, are fit for a terminal and a page, whoever wrote it."""
    if isinstance(value, str):
        return without_codes(value)
    if isinstance(value, dict):
        return {without_codes(key): cleaned(each) for key, each in value.items()}
    return [cleaned(each) for each in value] if isinstance(value, list) else value


def understood(text: bytes, path: Path, kind: type[Part], upgrade: older.Upgrade, remedy: str) -> Part:
    """The same of its text; `upgrade` is what suite.results.older has for this file."""
    try:
        # Of a record, what an adapter notes is free, and the rest is held against its invariants.
        if coded(text) or (not issubclass(kind, AnyRecord) and LONG.search(text)):
            text = json.dumps(cleaned(object_of(text, path, remedy))).encode()
        return _understood(text, path, kind, upgrade, remedy)
    except RecursionError:
        raise StoreError(f"{path} has values within values within values, too many; {remedy}") from None


def _understood(text: bytes, path: Path, kind: type[Part], upgrade: older.Upgrade, remedy: str) -> Part:
    if TODAYS.match(text):
        with suppress(StoreError):  # which the long way words better
            return parsed(kind, text, path, remedy)
    content = object_of(text, path, remedy)
    written = content.get("format", 1)  # of format 1, only run.json and the records say so
    if written in OLDER:
        return parsed(kind, json.dumps(older.upgraded(written, upgrade, content, path, remedy)), path, remedy)
    if written != FORMAT:
        error = RequestError if path.name == "run.json" else StoreError
        raise error(
            f"{path} has format {shown(written)}, this stagebench reads 1 to {FORMAT}; "
            "read it with the version that wrote it (run.json says which)"
        )
    return parsed(kind, text, path, remedy)
