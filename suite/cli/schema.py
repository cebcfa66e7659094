"""The JSON Schema of the files in a run folder: `python -m suite.cli.schema > docs/format-4.schema.json`."""

import json
import sys

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from suite.comm.records import CommEntry, CommRecord
from suite.results.proof import Proof
from suite.results.records import FORMAT, About, CaseEntry, Cases, Host, Record

FILES: dict[str, type[BaseModel]] = {
    "run.json": About,
    "cases.json": Cases[CaseEntry],
    "cases.json of communication": Cases[CommEntry],
    "hosts/NAME.json": Host,
    "proofs/KEY.json": Proof,
    "records/ID-rN.json": Record,
    "records/ID-rN.json of communication": CommRecord,
}


def schema() -> str:
    """Return one document: files in `properties` by name, their parts in `$defs`."""
    places, whole = models_json_schema([(model, "serialization") for model in FILES.values()])
    files = {name: places[model, "serialization"] for name, model in FILES.items()}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"The files of a stagebench run folder, format {FORMAT}",
        "description": "Each property is a file of that name, not a field of one document; see record-format.md.",
    }
    return json.dumps({**head, "properties": files, **whole}, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())
