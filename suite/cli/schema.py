"""The JSON Schema of the files in a run folder: `python -m stagebench.suite.cli.schema > docs/format-5.schema.json`."""

import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from stagebench.suite.contracts import engine_messages
from stagebench.suite.results.records import About, Cases, Host, Proof, Record
from stagebench.suite.results.stored import FORMAT
from stagebench.suite.worker import case_parts, contract, messages

MODULES = (messages, contract, engine_messages, case_parts)  # of NamedTuples that records keep
FILES: dict[str, type[BaseModel]] = {
    "run.json": About,
    "cases.json": Cases,
    "hosts/NAME.json": Host,
    "proofs/KEY.json": Proof,
    "records/ID-rN.json": Record,
}


def schema() -> str:
    """Return one document: files in `properties` by name, their parts in `$defs`."""
    places, whole = models_json_schema([(model, "serialization") for model in FILES.values()])
    files = {name: places[model, "serialization"] for name, model in FILES.items()}
    parts = {name: as_object(name, part) for name, part in whole["$defs"].items()}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"The files of a stagebench run folder, format {FORMAT}",
        "description": "Each property is a file of that name, not a field of one document; see record-format.md.",
    }
    return json.dumps({**head, "properties": files, "$defs": parts}, indent=1) + "\n"


def as_object(name: str, part: dict[str, Any]) -> dict[str, Any]:
    """Describe a worker's NamedTuple as an object of its fields, as it is written; pydantic describes an array."""
    if "prefixItems" not in part:
        return part
    module, _, short = name.rpartition("__")  # the module is named if two of them have a type of the name
    kind = next(
        getattr(each, short)
        for each in MODULES
        if hasattr(each, short) and module in ("", each.__name__.replace(".", "__"))
    )
    properties = dict(zip(kind._fields, part["prefixItems"], strict=True))
    required = [field for field in kind._fields if field not in kind._field_defaults]
    about = {"title": short, "description": kind.__doc__, "type": "object"}
    return {**about, "additionalProperties": False, "properties": properties, "required": required}


if __name__ == "__main__":
    sys.stdout.write(schema())
