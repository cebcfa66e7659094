"""Packed sets and the markers of data sets, a file of each broken: FORM/PATH on an input's first line, then the file.

LMDB's and TFRecord's own libraries read the rest, in the ranks' processes, where their end is an outcome. Of LMDB the
messages are read here (`datum`).
"""

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from hypothesis import strategies as st

from stagebench.adapters.caffempi import datum
from stagebench.adapters.cntk import imagemap, packing
from stagebench.adapters.cntk.plugin import FORMATS
from stagebench.adapters.mxnet import record_files
from stagebench.suite.data import pack, sets
from stagebench.suite.data.make import Photographs, photographs
from stagebench.suite.data.sets import SETS, Marker, Recipe, made
from stagebench.suite.errors import StagebenchError
from stagebench.suite.plugins import workloads
from stagebench.suite.worker.packed_set import FORMAT, Part, Record, RecordSource, Skipped, files_of
from stagebench.suite.worker.packed_set import Marker as Packed
from stagebench.suite.worker.typed_json import store
from tests.validation.fuzz.broken import IMAGES, broken_bytes, broken_json, image, of_another_kind

SET = "/SET/"  # stands for the set's folder where files name others
FORMS = ("cbf", "imagemap", "recordio", "lmdb")
MARKERS = ("records.json", "recipe.json", "part.json", "dataset.json")


def samples(folder: Path) -> list[Record]:
    """Two photographs."""
    found = []
    for number in range(2):
        path = folder / f"{number}.jpg"
        path.write_bytes(image("JPEG", size=(40 + number, 36)))
        pixels = np.arange(3 * 4 * 4, dtype=np.float32).reshape(3, 4, 4)
        found.append(Record(number, number, path.name, path.read_bytes(), pixels, str(path)))
    return found


def packed_set(form: str, folder: Path) -> None:
    """A whole set of one part in an empty folder."""
    part = folder / "part-00000"
    part.mkdir()
    two = samples(folder)
    match form:
        case "cbf":
            packing.write("cbf", two, str(part))
            (folder / "joined").mkdir()
            packing.join("cbf", [str(part)], str(folder / "joined"))
        case "imagemap":
            imagemap.write(two, str(part))
            (folder / "joined").mkdir()
            imagemap.join([str(part)], str(folder / "joined"))
        case "recordio":
            record_io([each.encoded or b"" for each in two], part)
        case "lmdb":
            (part / "datum").write_bytes(datum.Datum(3, (0, 0, 0), two[0].encoded, (), True).to_bytes())
    store(Part(2, []), str(part / "part.json"))
    recipe: tuple[Any, ...] = ("images", "folder", "0" * 12, [], 0, "cntk")
    (folder / "recipe.json").write_text(json.dumps(pack.Recipe(*recipe)._asdict()))
    inside = files_of(str(folder), [part.name])
    store(Packed(*recipe, FORMAT, form, 2, 2, [part.name], inside, Skipped(0, [])), str(folder / "records.json"))
    store(Marker("stagebench data make", Recipe(2, 1, 16, 16, 1, 97), True), str(folder / "dataset.json"))


def record_io(contents: list[bytes], folder: Path) -> None:
    """RecordIO as MXNet writes it."""
    files = record_files.in_folder(str(folder))
    with open(files.records, "wb") as records, open(files.offsets, "w") as offsets:
        for number, content in enumerate(contents):
            offsets.write(f"{number}\t{records.tell()}\n")
            records.write(struct.pack("<II", record_files.MAGIC, len(content)) + content + b"\0" * (-len(content) % 4))


@cache
def whole() -> dict[str, bytes]:
    """By FORM/PATH, every file of a set of each form."""
    found = {}
    for form in FORMS:
        with tempfile.TemporaryDirectory() as made_in:
            folder = Path(made_in)
            packed_set(form, folder)
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    content = path.read_bytes().replace(f"{made_in}/".encode(), SET.encode())
                    found[f"{form}/{path.relative_to(folder)}"] = content
    return found


@st.composite
def files(draw: Any) -> bytes:
    name = draw(st.sampled_from([each for each in sorted(whole()) if not each.endswith(".jpg")]))
    content = st.just(whole()[name])
    kinds = [broken_bytes(content), of_another_kind()]
    if name.endswith(".json"):
        kinds += [broken_json(content)] * 4
    return name.encode() + b"\n" + draw(st.one_of(kinds))


def read_packed(content: bytes, folder: Path) -> None:
    name, _, text = content.partition(b"\n")
    form, _, place = name.decode().partition("/")
    own = folder / "records"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    for each, whole_file in whole().items():
        kind, _, path = each.partition("/")
        if kind == form:
            (own / path).parent.mkdir(exist_ok=True)
            (own / path).write_bytes(placed(text if path == place else whole_file, own))
    if place not in MARKERS and crc32(content) % 2:  # as its maker would: what reads a form is reached
        marker = json.loads((own / "records.json").read_bytes())
        marker["files"] = files_of(str(own), ["part-00000"])
        (own / "records.json").write_text(json.dumps(marker))
    ended = [refusal(act) for act in (marked(own) if place == "dataset.json" else readers(form, own))]
    for error in filter(None, ended):
        raise error


def placed(text: bytes, own: Path) -> bytes:
    return text.replace(SET.encode(), f"{own}/".encode())


def marked(own: Path) -> list[Callable[[], Any]]:
    """What reads the marker of a folder that stagebench made."""
    return [lambda: list(photographs(Photographs(own, 2, 1, 16, 16, 1))), lambda: named(own)]


def readers(form: str, own: Path) -> list[Callable[[], Any]]:
    """What reads a packed set."""
    part, workload = own / "part-00000", workloads()["mnist_small"]
    asked = pack.Recipe("images", "folder", "0" * 12, [], 0, "cntk")
    found: list[Callable[[], Any]] = [
        lambda: RecordSource(str(own)).check((3, 224, 224), 10),
        lambda: pack.packed(own),
        lambda: pack._begin(own, asked),
        lambda: missing(own, workload),
    ]
    match form:
        case "cbf":
            found.append(lambda: chunks(part))
        case "imagemap":
            found.append(lambda: imagemap.check(str(own / "joined")))
        case "recordio":
            found.append(lambda: record_files.check(record_files.files_of(RecordSource(str(own)))))
        case "lmdb":
            found.append(lambda: message(part / "datum"))
    return found


def refusal(act: Callable[[], Any]) -> StagebenchError | None:
    """What a rank reports, or a command."""
    try:
        act()
    except StagebenchError as error:
        return error
    except (OSError, ValueError) as error:
        return StagebenchError(str(error))
    return None


def missing(own: Path, workload: Any) -> None:
    """As a plan looks at a set's records."""
    place = sets.records_place(str(own / "set"), FORMATS[0], workload)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(own)
    (own / "set" / "a").mkdir(parents=True)
    (own / "set" / "a" / "one.jpg").write_bytes(IMAGES[0])
    problem = sets.missing_records(str(own / "set"), own / "set", FORMATS[0], workload)
    if problem and "has changed since" not in problem:
        raise StagebenchError(problem.replace(str(place), str(own)))


def named(own: Path) -> None:
    """As `stagebench data list` finds a set that it made; what is damaged counts as not made."""
    os.environ["STAGEBENCH_DATA"] = str(own.parent / "home")
    home = own.parent / "home"
    home.mkdir(exist_ok=True)
    link = home / SETS["imagenet-like"].entry
    link.unlink(missing_ok=True)
    link.symlink_to(own)
    made("imagenet-like")


def chunks(part: Path) -> None:
    """As CNTK's adapter looks at its binary format, whose words for a problem it puts the file before."""
    path = packing.name_in(str(part), "cbf")
    try:
        with open(path, "rb") as stream:
            packing.table_of(stream)
    except (ValueError, struct.error) as error:
        raise OSError(f"cannot read the records {path}: {error}; pack them again") from error


def message(path: Path) -> None:
    try:
        datum.parsed(path.read_bytes())
    except ValueError as error:
        raise OSError(f"cannot read the record {path}: {error}; pack it again") from error


def places(content: bytes) -> tuple[str, ...]:
    return ("/records",)
