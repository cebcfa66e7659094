"""A file of a run folder, whatever its format: today's is checked at once, an older one is upgraded first."""

import json
import re
from contextlib import suppress
from pathlib import Path

from suite.errors import RequestError, StoreError
from suite.results import older
from suite.results.records import FORMAT
from suite.results.stored import Part, object_of, parsed, text_of
from suite.suggest import shown

TODAYS = re.compile(rf'{{\s*"format":\s*{FORMAT},'.encode())  # how a file begins that says first that it is today's
OLDER = tuple(range(1, FORMAT))


def read(path: Path, kind: type[Part], upgrade: older.Upgrade, remedy: str) -> Part:
    """A file of a run folder as today's type; StoreError (of run.json's format RequestError) with the remedy."""
    return understood(text_of(path, remedy), path, kind, upgrade, remedy)


def understood(text: bytes, path: Path, kind: type[Part], upgrade: older.Upgrade, remedy: str) -> Part:
    """The same of its text; `upgrade` is what suite.results.older has for this file."""
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
