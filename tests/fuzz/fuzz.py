"""Fuzzing in process: plans, records, data-set files and command lines, made and broken by Hypothesis.

    python tests/fuzz/fuzz.py --inputs 100000 --seed 1

Whatever comes in, a command ends well or with a StagebenchError of a reasonable length, within 5 seconds and 1 GB more
than it had before.
Every refusal of a file names its place and a remedy. What once failed stands in corpus/ (TARGET-WORD.bin) and is tried
first, in the tests too.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import re
import shutil
import signal
import struct
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 - the checkout stands first
import typer  # noqa: E402
from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from suite.analysis.summary import summarise  # noqa: E402
from suite.cli import LONG_WORD, app  # noqa: E402
from suite.errors import StagebenchError  # noqa: E402
from suite.plan.read import load, ready_made  # noqa: E402
from suite.plan.resolve import resolve  # noqa: E402
from suite.plugins import adapters, launchers, workloads  # noqa: E402
from suite.results.run_folder import RunFolder  # noqa: E402
from suite.results.stored import sealed  # noqa: E402
from suite.worker import idx  # noqa: E402
from tests.support.memory import little_memory  # noqa: E402

SECONDS, BYTES, LONGEST = 5, 1 << 30, 4000  # of an input, both; characters of a refusal
IMAGES, LABELS = idx.PARTS["train"]
# What a refusal names, one of them.
PLACES = {"plan": ("plan.toml",), "record": ("records/", "cases.json"), "data": ("set.npz",), "mnist": ("/mnist",)}
# What follows says what would be right.
REMEDY = re.compile(r"; |should |did you mean|known: |wants |is one of |: (take|write) |^name a plan |Try 'stagebench ")
CORPUS = Path(__file__).parent / "corpus"
RUN = max((ROOT / "tests" / "fixtures" / "runs").iterdir()) / "training"
ODD: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["", "..", "/", "\x1b[31m", "a" * 5000, "-o", "${HOME}", "nan", "1e999", 10**400, -1, 0, [], {}]),
)


class Hang(BaseException):
    """An input took more than SECONDS."""


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise Hang(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# --- how inputs are broken -----------------------------------------------------


@st.composite
def broken_bytes(draw: Any, whole: Any) -> bytes:
    """Bytes with a few cuts, flips and insertions."""
    found = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(0, len(found) - 1)))
        match draw(st.integers(0, 3)):
            case 0:
                del found[place:]
            case 1:
                found[place : place + draw(st.integers(0, 40))] = b""
            case 2:
                found[place:place] = draw(st.binary(max_size=12))
            case _:
                if found:
                    found[place] = draw(st.integers(0, 255))
    return bytes(found)


def alike(value: Any) -> Any:
    """Others of the same kind, beyond what whoever computes with them may expect."""
    match value:
        case bool() | str() | None:
            return st.sampled_from([value, False] if isinstance(value, bool) else [value, "", "x"])
        case int():
            return st.sampled_from([0, -1, 1, value + 1, 10**9, 10**30])
        case float():
            return st.sampled_from([0.0, -1.0, value / 1000, 1e-300, 1e9, 1e300])
        case list():
            return st.sampled_from([[], value[:1], value[:-1], value + value])
    return st.sampled_from([{}, dict(list(value.items())[1:])])


@st.composite
def broken_json(draw: Any, whole: Any) -> bytes:
    """JSON with a few values of another kind, sealed as its writer would."""
    content, like = json.loads(draw(whole)), draw(st.booleans())  # `like`: what a parser takes, in the inner parts
    for _ in range(draw(st.integers(1, 3))):
        place = content
        while isinstance(place, dict | list) and place:
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            inner = [key for key in keys if place[key] and isinstance(place[key], dict | list)]
            key = draw(st.sampled_from(inner if like and inner and draw(st.integers(0, 3)) else keys))
            if not place[key] or not isinstance(place[key], dict | list) or draw(st.integers(0, 2 + 2 * like)) == 0:
                place[key] = draw(alike(place[key]) if like else ODD)
                break
            place = place[key]
    if isinstance(content, dict) and isinstance(content.get("digest"), str):
        return sealed(json.dumps({**content, "digest": ""}, indent=1) + "\n").encode()
    return (json.dumps(content, indent=1) + "\n").encode()


def arrays() -> bytes:
    kept = io.BytesIO()
    np.savez(kept, images=np.arange(4 * 28 * 28).reshape(4, 28, 28).astype(np.uint8), labels=np.arange(4))
    return kept.getvalue()


EXTENTS = st.one_of(st.integers(0, 5), st.integers(2**26, 2**32 - 1))  # as they are, and as nobody has them


def mnist() -> bytes:
    """MNIST's file of images."""
    return struct.pack(">4B3I", 0, 0, idx.UNSIGNED_BYTES, 3, 4, 28, 28) + bytes(range(196)) * 16


@st.composite
def odd_mnist(draw: Any) -> bytes:
    """The same with other numbers of images, rows or columns."""
    extents = draw(st.lists(EXTENTS, max_size=5))
    header = struct.pack(f">4B{len(extents)}I", 0, 0, idx.UNSIGNED_BYTES, len(extents), *extents)
    return header + bytes(range(draw(st.integers(0, 200))))


@st.composite
def odd_arrays(draw: Any) -> bytes:
    """An .npz whose members are another kind, shape or type than they should be."""
    kept = io.BytesIO()
    kinds = st.sampled_from(["u1", "i8", "f4", "f8", "?", "U3", "M8[s]", "c8", "O"])
    with zipfile.ZipFile(kept, "w") as archive:
        for name in draw(st.lists(st.sampled_from(["images", "labels", "more"]), max_size=3, unique=True)):
            kind, shape, member = draw(kinds), tuple(draw(st.lists(st.integers(0, 5), max_size=4))), io.BytesIO()
            if draw(st.booleans()):
                np.save(member, np.ones(shape).astype(kind), allow_pickle=True)
            else:  # a header that promises what does not follow
                shape = tuple(draw(st.lists(EXTENTS, max_size=4)))
                told = {"shape": shape, "fortran_order": False, "descr": np.dtype(kind).str}
                np.lib.format.write_array_header_1_0(member, told)
            archive.writestr(f"{name}.npy", draw(broken_bytes(st.just(member.getvalue()))))
    return kept.getvalue()


OF_TOML = ("1979-05-27", "07:32:00", "0x" + "f" * 5000, "1" * 5000, "{ a = 1 }", "[[1], {b = 2}]", "inf", "-nan")
KEYS = ("adapter", "strategy", "workload", "batch", "ranks", "devices", "threads", "nodes", "data", "passes", "lr",
        "knobs", "hosts", "memory_limit", "precision", "optimiser", "tuning", "launcher", "schedule",
        "input")  # fmt: skip


@st.composite
def odd_plans(draw: Any) -> bytes:
    """Every key with any value."""
    value = st.one_of(ODD.map(toml), st.sampled_from(OF_TOML))
    rows = [f"{key} = {draw(value)}" for key in draw(st.lists(st.sampled_from(KEYS), max_size=6, unique=True))]
    top = draw(
        st.sampled_from(['name = "x"', "", "most_cases = -1", "[sampling]\nsteps = 1e99", "[defaults]\nbatch = []"])
    )
    return "\n".join([top, "[[cases]]", 'adapter = ["reference", "pytorch"]', *rows]).encode(errors="surrogatepass")


def toml(value: Any) -> str:
    return "nan" if value is None else json.dumps(value).replace("Infinity", "inf").replace("NaN", "nan")


WORDS = """
run show list data check predict compare history report export collect --print-plan --json -o --adapter --workload
--batch --ranks --set --knob --hosts --data --precision --scale --until --for --alpha --beta --rate reference pytorch
mnist_small quick sampling.steps=5 batch=[8,16] cases adapters plans 1e9 0 -1 RUN PLAN nowhere 3% 20min
"""
LINES = st.lists(st.one_of(st.sampled_from(WORDS.split()), st.text(max_size=8)), min_size=1, max_size=8).map(
    lambda words: "\0".join(word.replace("\0", "") for word in words).encode(errors="surrogatepass")
)


# --- the targets ------------------------------------------------------------


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
        (place / LABELS).write_bytes(struct.pack(">4BI", 0, 0, idx.UNSIGNED_BYTES, 1, 4) + bytes(range(4)))
        found.append(invoke("data", "check", str(place)))
    for code, output in found:
        refused(code, output)


def read_line(content: bytes, folder: Path) -> None:
    words = content.decode(errors="surrogatepass").split("\0")
    named = {"RUN": str(RUN), "PLAN": str(ready_made()["quick"]), "nowhere": str(folder / "nowhere")}
    words = [named.get(word, word) for word in words]
    if words[0] in ("run", "report", "export", "collect"):
        words += ["--print-plan"] if words[0] == "run" else ["-o", str(folder / "out")]
    elif words[0] not in ("show", "list", "data", "predict", "compare", "history"):
        words[0] = "list"
    if "make" in words or "pack" in words:
        return
    refused(*invoke(*words))


@cache
def command() -> Any:
    """Made once: most of a short command is making it."""
    return typer.main.get_command(app.build())


def invoke(*words: str) -> tuple[int, str]:
    """A command's exit code and output, in this process; what it does not expect is raised."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
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


RECORDS = {path.name: path.read_bytes() for path in sorted((RUN / "records").iterdir())}
RECORD = st.sampled_from(list(RECORDS.values()))
TARGETS: dict[str, tuple[Callable[[bytes, Path], None], Any, float]] = {  # (what reads, inputs, share of them)
    "plan": (read_plan, st.one_of(broken_bytes(st.just(ready_made()["quick"].read_bytes())), odd_plans()), 0.45),
    "record": (read_record, st.one_of(broken_bytes(RECORD), broken_json(RECORD)), 0.45),
    "data": (read_data, st.one_of(broken_bytes(st.just(arrays())), odd_arrays()), 0.04),
    "mnist": (read_mnist, st.one_of(broken_bytes(st.just(mnist())), odd_mnist()), 0.02),
    "line": (read_line, LINES, 0.04),
}


def tried(target: str, content: bytes, folder: Path) -> str:
    """How it ended: "taken" or "refused"; anything else is raised."""
    try:
        with in_time(), little_memory(BYTES):
            TARGETS[target][0](content, folder)
    except StagebenchError as error:
        problem = fault(target, error, content)
        if problem:
            raise ValueError(problem) from error
        return "refused"
    except OSError as error:
        if error.filename is None or len(str(error.filename)) < 200:  # `main` has words for names that are too long
            raise
        return "refused"
    return "taken"


def places(target: str, content: bytes) -> tuple[str, ...]:
    """What a refusal names, one of them: of a command line, the command or what it was given."""
    if target != "line":
        return PLACES[target]
    words = [word[:40] for word in content.decode(errors="surrogatepass").split("\0")]
    return (
        "stagebench ",
        "the options: ",
        str(RUN),
        "nowhere",
        *map(repr, words),
        *(word for word in words if len(word) > 1),
    )


def fault(target: str, refusal: StagebenchError, content: bytes) -> str | None:
    """What is wrong with a refusal of some content; None when nothing is."""
    text = str(refusal)
    if any(isinstance(each, MemoryError) for each in causes(refusal)):
        return f"a refusal after {BYTES} bytes: {text}"
    if not 10 < len(LONG_WORD.sub(r"\1", text)) < LONGEST:
        return f"a refusal of {len(text)} characters: {text[:LONGEST]}"
    if not any(place in text for place in places(target, content)):
        return f"a refusal without its place: {text}"
    for problem in text.splitlines()[1:] * (target == "plan") or [text]:
        if not REMEDY.search(problem) and not problem.startswith("and "):
            return f"a refusal without a remedy: {problem}"
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it was raised for."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def fuzz(target: str, inputs: int, number: int, folder: Path) -> Counter[str]:
    """So many inputs of a target; the first that fails is made small, kept in the corpus and raised."""
    counts: Counter[str] = Counter()
    worst: list[bytes] = []

    @seed(number)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(TARGETS[target][1])
    def each(content: bytes) -> None:
        worst[:] = [content]
        counts[tried(target, content, folder)] += 1

    try:
        each()
    except BaseException:
        (CORPUS / f"{target}-{number}.bin").write_bytes(worst[0])
        raise
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    os.environ["STAGEBENCH_CACHE"] = tempfile.mkdtemp()
    found: dict[str, Any] = {}
    for target, (_, _, share) in TARGETS.items():
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                found[target] = dict(fuzz(target, int(asked.inputs * share), asked.seed, Path(folder)))
            except Exception as error:
                found[target] = {"failed": f"{type(error).__name__}: {error}"[:500]}
        found[target]["seconds"] = round(time.monotonic() - began)
        sys.stderr.write(f"{target}: {found[target]}\n")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return int(any("failed" in each for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
