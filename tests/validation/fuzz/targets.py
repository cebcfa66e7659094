"""What is fuzzed: for each target what reads an input, inputs, and how many of a hundred thousand are its."""

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import typer
from hypothesis import strategies as st

from stagebench.adapters.cntk import imagemap
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.cli import app
from stagebench.suite.errors import StagebenchError
from stagebench.suite.plan import networks
from stagebench.suite.plan.read import load, ready_made
from stagebench.suite.plan.resolve import resolve
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.predict.scenario import by_arithmetic
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker import array_files
from stagebench.suite.worker.image_folder import listed, of_a_system
from stagebench.suite.worker.photographs import Photographs, common, shrunk
from stagebench.workloads.catalogue import PHOTOGRAPHS
from stagebench.workloads.networks import by_name
from tests.validation.fuzz import broken, lines, packed
from tests.validation.fuzz.broken import broken_bytes, broken_json
from tests.validation.fuzz.world import FIXTURES, LAYERS, copied, file_of, whole_files, world

RUN = max((FIXTURES / "runs").iterdir()) / "training"
SMALL = ("alexnet", "mnist_small")  # whose graphs are fuzzed: of other kinds of layers
IMAGES, LABELS = array_files.PARTS["train"]
RECORDS = {path.name: path.read_bytes() for path in sorted((RUN / "records").iterdir())}
PIXELS = Photographs(PHOTOGRAPHS._replace(resize=32), 24)


class Target(NamedTuple):
    """`reads` gets an input and a folder; `places`: what a refusal of that input names, one of them."""

    reads: Callable[[bytes, Path], None]
    inputs: Any
    share: float
    places: Callable[[bytes], tuple[str, ...]]
    begin: Callable[[], object] = lambda: None  # before the first input


# --- plans and records ------------------------------------------------------------


def read_plan(content: bytes, folder: Path) -> None:
    path = folder / "plan.toml"
    path.write_bytes(content)
    resolve(load(path), adapters(), launchers(), workloads())


def read_record(content: bytes, folder: Path) -> None:
    """In the place that it names, with its own case for that of cases.json in half of the inputs."""
    run, sum_ = folder / "run", crc32(content)
    if not run.exists():
        shutil.copytree(RUN, run)
    for path in (run / "records").iterdir():
        path.unlink()
    record, cases = read_json(content), json.loads((RUN / "cases.json").read_text())
    place = next((name for name in RECORDS if name.startswith(f"{record.get('case_id')}-r")), min(RECORDS))
    (run / "records" / place).write_bytes(content)
    for entry in cases["cases"]:
        if sum_ % 2 and "case" in record and entry["id"] == record.get("case_id"):
            entry["case"] = record["case"]
    (run / "cases.json").write_text(json.dumps(cases))
    found = RunFolder(run)
    for row in summarise(found):
        json.dumps(row.to_dict())
    if sum_ % 32 < 2:
        refused(*invoke("report", str(run), "--json"))
    for problem in found.invalid.values():
        raise StagebenchError(problem)


def read_json(content: bytes) -> dict[str, Any]:
    """The object of a JSON text; an empty one where it is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- the files of a run folder ----------------------------------------------------

READING: tuple[tuple[str, ...], ...] = (
    ("show", "RUN"), ("show", "RUN", "--json"), ("show", "RUN", "--roofline"), ("report", "RUN", "--json"),
    ("compare", "RUN", "AGAIN"), ("compare", "AGAIN", "RUN", "--json"), ("history", "AGAIN", "RUN"),
    ("collect", "RUN", "-o", "OUT"), ("collect", "RUN", "AGAIN", "-o", "OUT"), ("export", "RUN", "csv", "-o", "OUT"),
    ("export", "RUN", "json", "-o", "OUT"), ("predict", "RUN"), ("predict", "RUN", "--json"),
    ("predict", "--comm", "RUN", "--workload", "mnist_small", "--batch", "8", "--rate", "9", "--ranks", "2"),
    ("run", "PLAN", "-o", "RUN"), ("run", "PLAN", "-o", "RUN", "--retry"),
)  # fmt: skip
WRITING: tuple[tuple[str, ...], ...] = (
    ("report", "RUN", "-o", "OUT"), ("report", "RUN", "--single", "-o", "OUT"), ("report", "RUN", "AGAIN", "-o", "OUT"),
    ("publish", "RUNS", "-o", "OUT"),
)  # fmt: skip
SELDOM = 24  # pages take a hundred times as long as tables


def read_run(content: bytes, folder: Path) -> None:
    """A run folder with a file replaced, the one of the input's first line (RUN/NAME), by two commands that read it."""
    name, _, text = content.partition(b"\n")
    kind, _, place = name.decode().partition("/")
    run, sum_ = copied(kind, folder / "runs" / "run"), crc32(content)
    file = file_of(run, place)
    assert file is not None, f"{kind} has no {place}"
    file.write_bytes(text)
    out = folder / "out"
    named = {"RUN": str(run), "AGAIN": str(world() / "again"), "PLAN": str(world() / "plan.toml"), "OUT": str(out)}
    named["RUNS"] = str(run.parent)
    commands = [READING[sum_ % len(READING)], READING[sum_ // 1000 % len(READING)]]
    if sum_ % SELDOM == 0:
        commands.append(WRITING[sum_ // SELDOM % len(WRITING)])
    ended = []
    for words in commands:
        shutil.rmtree(out, ignore_errors=True)
        ended.append(attempt(lambda words=words: misused(*invoke(*(named.get(word, word) for word in words)))))  # type: ignore[misc]
    for error in filter(None, ended):
        raise error


def attempt(act: Callable[[], None]) -> StagebenchError | None:
    """The refusal that it ended with."""
    try:
        act()
    except StagebenchError as error:
        return error
    return None


@st.composite
def run_files(draw: Any) -> bytes:
    name = draw(st.sampled_from(sorted(whole_files())))
    whole = st.just(whole_files()[name])
    kinds = [broken_bytes(whole), broken.of_another_kind()]
    if not name.endswith(".toml"):
        kinds += [broken_json(whole)] * 4
    return name.encode() + b"\n" + draw(st.one_of(kinds))


# --- data sets ---------------------------------------------------------------------


def read_data(content: bytes, folder: Path) -> None:
    (folder / "set.npz").write_bytes(content)
    refused(*invoke("data", "check", str(folder / "set.npz")))


def read_mnist(content: bytes, folder: Path) -> None:
    """Packed and as it is."""
    found, place = [], folder / "mnist"
    place.mkdir(exist_ok=True)
    for images, other, written in ((IMAGES, f"{IMAGES}.gz", content), (f"{IMAGES}.gz", IMAGES, gzip.compress(content))):
        (place / other).unlink(missing_ok=True)
        (place / images).write_bytes(written)
        (place / LABELS).write_bytes(struct.pack(">4BI", 0, 0, array_files.UNSIGNED_BYTES, 1, 4) + bytes(range(4)))
        found.append(invoke("data", "check", str(place)))
    for code, output in found:
        refused(code, output)


def read_image(content: bytes, folder: Path) -> None:
    """By `data check`, as ranks read it, and as it is packed; what the first takes, the others take."""
    place = folder / "images"
    for label in ("a", "b"):
        (place / label).mkdir(parents=True, exist_ok=True)
    (place / "b" / "whole.jpg").write_bytes(broken.IMAGES[0])
    for old in (place / "a").iterdir():
        old.unlink()
    file = place / "a" / ("image.jpg", "image.png")[crc32(content) % 2]
    file.write_bytes(content)
    ended = attempt(lambda: refused(*invoke("data", "check", str(place))))
    try:
        PIXELS.centre(str(file), str(file))
        PIXELS.random(content, str(file), np.random.RandomState(0))
        imagemap.own(1, common(content), str(folder))
        shrunk(content, 16)
    except (OSError, ValueError) as error:
        raise (ended or StagebenchError(f"`data check` takes what a rank refuses: {error}")) from error
    if ended:
        raise ended


# What a path in a set has: folders of persons, of programs and systems; files of every format, and of none.
FOLDERS = (b"a", b"b", b"train", b"val", b"Test", b"n01", b"images", b".git", b"@eaDir", b"lost+found", b"__MACOSX",
           b".ipynb_checkpoints", b"$RECYCLE.BIN", b"System Volume Information", b"r\xe9sum\xe9", "\u00e9".encode(),
           b"a\nb", b"-o", b" ", b"\x1b[31m")  # fmt: skip
FILES = (b"1.jpg", b"2.JPEG", b"3.png", b"4.webp", b"5.bmp", b"6.tif", b"7.gif", b"8.heic", b"9.ppm", b"._1.jpg",
         b".DS_Store", b"Thumbs.db", b"desktop.ini", b"notes.txt", b"r\xe9.jpg", "\u00e9.jpg".encode(), b"a\tb.png",
         b"", b"x.jpg/y")  # fmt: skip


def read_folder(content: bytes, folder: Path) -> None:
    """A set of these paths, one a line ending in a null: what is taken has no name of a system, and is text."""
    place = folder / "set"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for number, path in enumerate(filter(None, content.split(b"\0"))):
        name = os.path.join(os.fsencode(place), path)
        with contextlib.suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            os.makedirs(os.path.dirname(name), exist_ok=True)
            if not name.endswith(b"/"):
                with open(name, "wb") as stream:
                    stream.write(broken.IMAGES[(number + crc32(content)) % len(broken.IMAGES)])
    code, output = invoke("data", "check", str(place))
    assert " remove" not in output, output
    refused(code, output)
    found = listed(str(place))
    names = [name for path, _ in found.files for name in Path(path).relative_to(place).parts]
    assert not any(map(of_a_system, names)), names
    "".join(names + found.left_out).encode()
    assert {label for _, label in found.files} == set(range(len(found.classes)))


@st.composite
def trees(draw: Any) -> bytes:
    """A set of two classes with a few other paths, or a few paths alone."""
    paths = [b"a/1.jpg", b"b/1.jpg"] * draw(st.integers(0, 1))
    for _ in range(draw(st.integers(0, 6))):
        folders = draw(st.lists(st.sampled_from(FOLDERS), max_size=3))
        paths.append(b"/".join([*folders, draw(st.sampled_from(FILES))]))
    return b"\0".join(paths)


# --- networks, layers, what other programs printed -----------------------------------

GRAPHS = [json.dumps(by_name()[name].graph().to_dict()).encode() for name in SMALL]
LOGS = [  # after the command, which nccl-tests' own output need not name
    f"./{path.stem}\n".encode() + path.read_bytes()
    for path in sorted((FIXTURES / "foreign").iterdir())
    if path.suffix in (".txt", ".log")
]
PREFIXES = ("", "", "[1,0]<stdout>:", "12: ", "2026-07-09T10:00:00.1234567Z ", "worker-0  | ", "\x1b[32m")
ENDS = ("\n", "\n", "\r\n", "\x1b[0m\n", "\x1b[K\n")


def read_network(content: bytes, folder: Path) -> None:
    """A graph's JSON as a plan reads it, and what is computed of a graph that is taken."""
    path = folder / "net.json"
    path.write_bytes(content)
    network = networks.read(path).graph()
    json.dumps([network.to_dict(), network.digest, network.parameter_count, network.macs])
    by_arithmetic(network, 0.1, 8)


def read_layers(content: bytes, folder: Path) -> None:
    (folder / "layers.json").write_bytes(content)
    link = ("--alpha", "2e-4", "--beta", "8e-10", "--batch", "8", "--ranks", "2,4")
    refused(*invoke("predict", "--set", f"layers={folder}/layers.json", *link, *(["--json"] * (crc32(content) % 2))))


def read_log(content: bytes, folder: Path) -> None:
    """What another program printed, imported and reported."""
    out = folder / "imported"
    shutil.rmtree(out, ignore_errors=True)
    (folder / "printed.log").write_bytes(content)
    refused(*invoke("import", str(folder / "printed.log"), "-o", str(out)))
    refused(*invoke("report", str(out), "--json"))


@st.composite
def printed(draw: Any) -> bytes:
    """Up to three logs, joined and prefixed, with a few numbers replaced, lines doubled, and bytes broken."""
    kinds = st.tuples(st.sampled_from(PREFIXES), st.sampled_from(LOGS), st.sampled_from(ENDS))
    logs = draw(st.lists(kinds, min_size=1, max_size=3))
    lines_ = [before + line + end for before, log, end in logs for line in log.decode().splitlines()]
    odd = st.sampled_from(["0", "-1", "1e999", "nan", "9" * 400, "", "1,5", "\u0661", "x", "1e-320", "-0.0"])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(lines_) - 1))
        found = list(re.finditer(r"[0-9][0-9.e+-]*", lines_[at]))
        if found and draw(st.integers(0, 4)):
            number = draw(st.sampled_from(found))
            lines_[at] = lines_[at][: number.start()] + draw(odd) + lines_[at][number.end() :]
        else:
            lines_.insert(draw(st.integers(0, len(lines_))), lines_[at])
    return draw(broken_bytes(st.just("".join(lines_).encode()))) if draw(st.booleans()) else "".join(lines_).encode()


# --- commands -----------------------------------------------------------------------


def read_line(content: bytes, folder: Path) -> None:
    words = content.decode(errors="surrogatepass").split("\0")
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    misused(*invoke(*lines.placed(words, out)))


@cache
def command() -> Any:
    """Made once: most of a short command is making it."""
    return typer.main.get_command(app.build())


def invoke(*words: str) -> tuple[int, str]:
    """A command's exit code and output, in this process; what it does not expect is raised."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    code = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            command().main(words, prog_name="stagebench")
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    output.seek(0)
    return code, output.read()


def refused(code: int, output: str) -> None:
    """Raise what a command printed before it ended with a code."""
    if code:
        raise StagebenchError(output)


def misused(code: int, output: str) -> None:
    """Likewise where the command was not understood; a comparison, say, that finds runs worse, is an answer."""
    if output.startswith("Usage: "):
        refused(code, output)


def always(*places: str) -> Callable[[bytes], tuple[str, ...]]:
    return lambda content: places


def in_run(content: bytes) -> tuple[str, ...]:
    """The file itself, another one that it contradicts, or the folder."""
    return (content.partition(b"\n")[0].decode().partition("/")[2], "/runs/run", "run and again", "again and run")


def named(content: bytes) -> tuple[str, ...]:
    """Of a command line, the command or what it was given."""
    whole = content.decode(errors="surrogatepass")
    words = [word[:40] for word in (*whole.split("\0"), *re.split("[\0/]", whole))]
    quoted = (repr(word).replace("\\udc", "\\x") for word in words)  # codes of bytes, as a refusal has them
    short = (f"{word or '.'}{end}" for word in words if len(word) < 2 for end in (" ", ":", ",", ";"))
    longer = [word for word in words if len(word) > 1]
    read = [int(word) for word in longer if re.fullmatch(r"\d+_\d+", word)]  # as the command line reads it
    longer += map(str, [*read, *(float(word) for word in longer if re.fullmatch(r"-?\d+(\.\d+)?e-?\d+", word))])
    return ("stagebench ", "the options: ", "/out/", str(world()), *quoted, *short, *longer)


RECORD = st.sampled_from(list(RECORDS.values()))
TARGETS = {
    "plan": Target(
        read_plan,
        st.one_of(broken_bytes(st.just(ready_made()["quick"].read_bytes())), broken.odd_plans()),
        0.2,
        always("plan.toml"),
    ),
    "record": Target(
        read_record, st.one_of(broken_bytes(RECORD), broken_json(RECORD)), 0.2, always("records/", "cases.json")
    ),
    "run": Target(read_run, run_files(), 0.15, in_run, world),
    "data": Target(
        read_data, st.one_of(broken_bytes(st.just(broken.arrays())), broken.odd_arrays()), 0.05, always("set.npz")
    ),
    "mnist": Target(
        read_mnist, st.one_of(broken_bytes(st.just(broken.mnist())), broken.odd_mnist()), 0.03, always("/mnist")
    ),
    "image": Target(
        read_image,
        st.one_of(broken_bytes(st.sampled_from(broken.IMAGES)), broken.odd_extents(), st.binary(max_size=40)),
        0.05,
        always("/images"),
    ),
    "folder": Target(read_folder, trees(), 0.05, always("/set")),
    "packed": Target(packed.read_packed, packed.files(), 0.07, packed.places, packed.whole),
    "network": Target(
        read_network,
        st.one_of(*[broken_json(st.sampled_from(GRAPHS))] * 4, broken_bytes(st.just(min(GRAPHS, key=len)))),
        0.04,
        always("net.json"),
    ),
    "layers": Target(
        read_layers,
        st.one_of(
            broken_json(st.just(LAYERS.encode())), broken_bytes(st.just(LAYERS.encode())), broken.of_another_kind()
        ),
        0.03,
        always("layers.json"),
    ),
    "log": Target(read_log, printed(), 0.03, always("printed.log", "/imported")),
    "line": Target(read_line, lines.LINES, 0.1, named, world),
}
