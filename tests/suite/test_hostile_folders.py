"""Whatever stands in the files of a run folder: commands end well or with one message, and never wait or trace back."""

import importlib.util
import json
import os
import py_compile
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from stagebench.suite.cli import app, main
from stagebench.suite.errors import StagebenchError
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import sealed
from stagebench.workloads.networks import by_name
from tests.suite.measuring import PLAN
from tests.support.errors import raising

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runs"
RUNS = max(FIXTURES.iterdir())  # of the newest format
WRONG = (b"", b"[]", b"{}", b"null", b"NaN", b'"x"', b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe\x00\x01")
FILES = ("run.json", "cases.json", "plan.toml", "hosts", "proofs", "records", "networks")
REMEDY = re.compile(r"; (?=\w)|should |did you mean|known: |cannot be a run folder: ")  # what precedes what is right


def ends_well(*arguments: str | Path, named: str = "") -> str:
    """Run a command; what it told. It must not fail otherwise than with a message of a reasonable length.

    The message names what is wrong (`named`, a part of its path) and has a remedy behind it.
    """
    done = CliRunner().invoke(app.build(), [str(each) for each in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        assert isinstance(done.exception, StagebenchError), done.exception
        assert len(str(done.exception)) < 2000
        assert named in str(done.exception)
        assert REMEDY.search(str(done.exception)), done.exception
    return done.output + str(done.exception or "")


def one_of(run: Path, name: str) -> Path | None:
    """A file of the run, the first of a folder's."""
    place = run / name
    return next(iter(sorted(place.iterdir())), None) if place.is_dir() else place


@pytest.mark.parametrize("kind", ["training", "comm"])
@pytest.mark.parametrize("name", FILES)
def test_reading_a_run_with_a_hostile_file(kind, name, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(RUNS / kind, run)
    if name == "networks" and kind == "training":
        for workload in {entry.case.workload for entry in RunFolder(run).cases}:
            RunFolder(run).keep_network(by_name()[workload].graph())
    path = one_of(run, name)
    if path is None or not path.exists():
        pytest.skip(f"a run of {kind} has no {name}")
    whole, place = path.read_bytes(), path.relative_to(run)
    reading = [("report", run, "--json"), *([("predict", run)] if name == "networks" else [])]
    for wrong in (*WRONG, whole[: len(whole) // 2]):
        path.write_bytes(wrong)
        of_format_1 = name == "run.json" and wrong == b"{}"  # to which other files do not belong
        told = "".join(ends_well(*command, named="json" if of_format_1 else str(place)) for command in reading)
        assert of_format_1 or name not in ("records", "networks", "run.json", "cases.json") or str(place) in told
    path.unlink()
    os.mkfifo(path)
    collecting = [("collect", run, "-o", tmp_path / "all")] if kind == "training" else []
    for command in (*reading, ("show", run), *collecting):
        ends_well(*command, named=str(place))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value but the root."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


VALUES = (None, [], {}, "x", -1, 0, 1e300, 10**30, 10**400, True, "", [[]], {"a": 1}, "../../x", "x" * 5000)


@pytest.mark.parametrize("seed", range(40))
def test_reading_a_run_with_a_hostile_value(seed, tmp_path):
    chance = random.Random(seed)
    source = chance.choice(sorted(RUNS.glob("*/**/*.json")))
    content = json.loads(source.read_text())
    *outer, last = chance.choice(list(places(content)))
    inner = content
    for key in outer:
        inner = inner[key]
    inner[last] = chance.choice(VALUES)
    kind = source.relative_to(RUNS).parts[0]
    shutil.copytree(RUNS / kind, tmp_path / "run")
    place = source.relative_to(RUNS / kind)
    text = json.dumps(content)
    if isinstance(content.get("digest"), str):  # as whoever makes such a file would
        text = sealed(json.dumps({**content, "digest": ""}))
    (tmp_path / "run" / place).write_text(text)
    ends_well("report", tmp_path / "run", "--json", named=str(place))


def test_a_host_of_a_record_cannot_leave_the_folder(tmp_path):
    """collect writes hosts and proofs by the names that a folder gives them."""
    for name, key in (("hosts", "host"), ("proofs", "key")):
        run = tmp_path / name
        shutil.copytree(RUNS / "training", run)
        path = one_of(run, name)
        assert path is not None
        path.write_text(json.dumps({**json.loads(path.read_text()), key: "../../escaped"}))
        assert f"{key}: String should match pattern" in ends_well("collect", run, "-o", tmp_path / "all")
    assert not list(tmp_path.rglob("*escaped*"))


CODES = "\x1b]0;title\x07\x1b[31m[/red]<script>alert(1)</script>\u202e"


def planted(run: Path, kind: str, *keys: str) -> Path:
    """A run in which CODES are the value of these keys, sealed as its writer would."""
    shutil.copytree(RUNS / kind, run)
    for path in run.rglob("*.json"):
        text = path.read_text()
        for key in keys:
            if not (key == "plan" and path.parent != run):  # of a record: the digest of plan.toml
                text = re.sub(rf'"{key}": "[^"]*"', lambda _, key=key: f'"{key}": {json.dumps(CODES)}', text)
        path.write_text(sealed(re.sub(r'"digest": "\w{32}"', '"digest": ""', text, count=1)))
    return run


def readable(run: Path) -> bool:
    """Whether every file of a run is taken."""
    folder = RunFolder(run)
    try:
        return not folder.unusable() and all(map(bool, (folder.cases, folder.hosts(), folder.proofs() or True)))
    except StagebenchError:
        return False


def keys(kind: str) -> list[str]:
    """Of every string in the files of a run."""
    found: set[str] = set()

    def note(pairs: list[tuple[str, Any]]) -> None:
        found.update(key for key, value in pairs if isinstance(value, str))

    for path in (RUNS / kind).rglob("*.json"):
        json.loads(path.read_text(), object_pairs_hook=note)
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(6))
@pytest.mark.parametrize("kind", ["training", "comm"])
def test_no_code_of_a_file_reaches_a_terminal_a_page_or_a_table(kind, share, tmp_path):
    """The keys that take any text are looked at in one run, each of the others, whose file is refused, in its own."""
    chosen = keys(kind)[share::6]
    free = [key for at, key in enumerate(chosen) if readable(planted(tmp_path / str(at), kind, key))]
    shared = planted(tmp_path / "run", kind, *free)
    assert len(free) > len(chosen) / 2
    assert readable(shared)
    shown(shared, kind, tmp_path)
    assert (tmp_path / "pages" / "index.html").exists()
    for at, key in enumerate(chosen):
        if key not in free:
            shown(tmp_path / str(at), kind, tmp_path / f"of {at}")


def shown(run: Path, kind: str, out: Path) -> None:
    """Commands show a run: in all that they write there is no code."""
    formats = ("csv", "markdown", "junit", "trace") if kind == "training" else ("csv", "markdown")
    told = [
        ends_well("show", run),
        ends_well("predict", run),
        ends_well("history", run),
        ends_well("compare", RUNS / kind, run),
        ends_well("report", run, "-o", out / "pages"),
        ends_well("export", run, *formats, "-o", out / "export"),
    ]
    files = [path for place in ("pages", "export") for path in (out / place).rglob("*") if path.is_file()]
    for text in (*told, *(path.read_text() for path in files)):
        assert not re.search(r"[\x1b\x07\u202e]", text)
    for page in out.rglob("*.html"):
        assert "<script>alert(1)" not in page.read_text()


def test_what_json_has_a_short_word_for_is_a_code_and_a_number_that_no_division_takes_one_message(tmp_path):
    run = shutil.copytree(RUNS / "training", tmp_path / "run")
    (path,) = (run / "hosts").glob("*.json")
    whole = path.read_text()
    for short in ("\\r", "\\b", "\\f"):
        path.write_text(re.sub(r'"cpu": "[^"]*"', lambda _, short=short: f'"cpu": "GOOD{short}EVIL"', whole))
        assert [host.machine.cpu for host in RunFolder.open(run).hosts().values()] == ["GOODEVIL"]
    path.write_text(re.sub(r'"memory_bytes": \d+', f'"memory_bytes": {10**400}', whole))
    with raising(StagebenchError, path, 401):
        RunFolder.open(run).hosts()


def test_no_code_of_a_plan_reaches_a_page(tmp_path):
    run = shutil.copytree(RUNS / "training", tmp_path / "run")
    plan = run / "plan.toml"
    plan.write_text(f"title = {json.dumps(CODES)}\n# {CODES}\n{plan.read_text()}")
    ends_well("report", run, "-o", tmp_path / "pages")
    for page in (tmp_path / "pages").rglob("*.html"):
        assert not re.search(r"[\x1b\u202e]|<script>alert", page.read_text())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    (folder / "tiny.toml").write_text(PLAN)
    command = ("run", folder / "tiny.toml", "--no-proofs", "-o")
    assert "1 ok" in ends_well(*command, folder / "run")
    return SimpleNamespace(run=folder / "run", command=command)


@pytest.mark.parametrize("name", ["run.json", "cases.json", "plan.toml", "hosts", "bundles", "attempts", "records"])
def test_resuming_a_run_with_a_hostile_file(measured, name, tmp_path):
    files = [Path(name)] if "." in name else sorted(measured.run.glob(f"{name}/**/*.*"))[:1]
    for wrong in WRONG[:1] if name == "records" else WRONG:
        run = tmp_path / str(WRONG.index(wrong))
        shutil.copytree(measured.run, run)
        (run / measured.run.joinpath(*files).relative_to(measured.run)).write_bytes(wrong)
        told = ends_well(*measured.command, run)
        assert "1 ok" in told or str(run) in told


@pytest.fixture
def unmeasured(measured, tmp_path):
    """The same run without its record: it is measured again."""
    run = shutil.copytree(measured.run, tmp_path / "run")
    for record in (run / "records").iterdir():
        record.unlink()
    return Path(run)


def test_byte_code_that_came_with_a_run_is_not_run(measured, unmeasured, tmp_path):
    """Whatever its date, Python would take it for the module's: it stands beside the very code that is checked."""
    worker = unmeasured / "bundles" / "reference" / "suite" / "worker"
    evil = tmp_path / "clock.py"
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n" + (worker / "clock.py").read_text())
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    place = importlib.util.cache_from_source(str(worker / "clock.py"))
    py_compile.compile(str(evil), place, invalidation_mode=unchecked)
    assert "1 ok" in ends_well(*measured.command, unmeasured)
    assert not (tmp_path / "ran").exists()
    assert not Path(place).exists()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (".lock", "cannot be a run folder: Too many levels of symbolic links"),
        ("attempts", "attempts is a link; a run writes into its own folder alone"),
        ("records", "records is a link"),
        ("attempts/*", "1 ok"),
        ("attempts/*/rank-0.log", "1 ok"),
        ("attempts/*/job.json", "1 ok"),
    ],
)
def test_a_run_is_not_measured_through_links(measured, unmeasured, tmp_path, place, told):
    (link,) = unmeasured.glob(place)
    elsewhere = link.rename(tmp_path / "elsewhere")
    for path in elsewhere.rglob("*") if elsewhere.is_dir() else [elsewhere]:
        if path.is_file():
            path.write_text("mine")
    link.symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in (elsewhere, *elsewhere.rglob("*")) if path.is_file()}
    assert told in ends_well(*measured.command, unmeasured)
    assert {path: path.read_bytes() for path in (elsewhere, *elsewhere.rglob("*")) if path.is_file()} == before


@pytest.mark.parametrize("place", ["attempts/*/job.json", "attempts/*/rank-0.log", "bundles/*/bundle.json"])
def test_a_run_is_measured_again_beside_pipes(measured, unmeasured, place):
    """Whoever opens one waits for ever."""
    (pipe,) = unmeasured.glob(place)
    pipe.unlink()
    os.mkfifo(pipe)
    assert "1 ok" in ends_well(*measured.command, unmeasured)


@pytest.mark.parametrize(
    ("command", "place"), [("report", "report"), ("report", "report/assets"), ("export", "export")]
)
def test_what_is_written_into_a_run_stays_in_it(tmp_path, command, place):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    shutil.copytree(RUNS / "training", run)
    elsewhere.mkdir()
    (run / place).parent.mkdir(exist_ok=True)
    (run / place).symlink_to(elsewhere)
    words = (command, run, *(["csv"] if command == "export" else []))
    assert f"{run / place} is a link" in ends_well(*words)
    assert not list(elsewhere.iterdir())
    assert "is a link" not in ends_well(*words, "-o", elsewhere), "who names it means it"


def test_resuming_communication_with_a_hostile_file(measured, tmp_path):
    """A run of another kind, and one of an older format."""
    for run in (measured.run, RUNS / "comm"):
        shutil.copytree(run, tmp_path / run.name)
        assert str(tmp_path / run.name) in ends_well("comm", "-o", tmp_path / run.name)


LONG = "x" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", LONG),
        ("run", "--adapter", LONG, "--workload", LONG),
        ("run", "--adapter", "reference", "--workload", f"{LONG}.json"),
        ("run", "--adapter", "reference", "--workload", "mnist_small", "--data", LONG),
        ("run", "--adapter", "reference", "--workload", "mnist_small", "--hosts", LONG),
        ("run", "--adapter", "reference", "--workload", "mnist_small", "--python", f"reference={LONG}"),
        ("run", "--adapter", "reference", "--workload", "mnist_small", "--knob", f"{LONG}={LONG}"),
        ("run", "--adapter", "reference", "--workload", "mnist_small", "-o", LONG),
        ("run", "--set", f"{LONG}=1"),
        ("run", "--set", "batch=" + "[" * 5000),
        ("comm", "--backend", LONG),
        ("comm", "--hosts", f"a,{LONG}"),
        ("comm", "-o", LONG),
        ("show", LONG),
        ("report", LONG),
        ("report", RUNS / "training", "-o", LONG),
        ("collect", LONG, "-o", "x"),
        ("collect", RUNS / "training", "-o", LONG),
        ("data", "check", LONG),
        ("data", "convert", LONG),
        ("data", "make", "digits", "-o", LONG),
        ("verify", "--workload", LONG),
        ("new-adapter", LONG),
        ("new-adapter", "lumen", "-o", LONG),
        ("predict", LONG),
        ("manifests", LONG, "-o", "x", "--image", "y"),
        ("manifests", "quick", "-o", LONG, "--image", "y"),
        ("run", "quick", "--until", LONG),
        ("run", "quick", "--for", LONG),
        ("predict", "--workload", "alexnet", "--ranks", LONG),
        ("comm", "--sizes", LONG),
    ],
    ids=lambda arguments: " ".join(str(each)[:12] for each in arguments),
)
@pytest.mark.parametrize("long", [LONG, "a b " * 5000], ids=["a word", "many words"])
def test_a_name_that_is_too_long_is_one_short_message(arguments, long, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["stagebench", *(str(each).replace(LONG, long) for each in arguments)])
    assert main() in (1, 2)
    told = capsys.readouterr().err
    assert told.startswith("stagebench: ")
    assert len(told) < 2000
