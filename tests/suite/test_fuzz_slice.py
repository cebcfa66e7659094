"""What once failed, and a few hundred new inputs; `tox run -e fuzz` tries a hundred thousand."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("hypothesis")

from stagebench.suite.analysis import summary
from stagebench.suite.errors import StagebenchError
from stagebench.suite.results import run_folder
from stagebench.suite.results.records import Record
from stagebench.suite.worker import array_files
from tests.validation.fuzz import border, broken, fuzz, lines, targets

pytestmark = pytest.mark.xdist_group("fuzz")  # one world for all
INPUTS = {"plan": 150, "record": 150, "run": 60, "data": 50, "mnist": 30, "image": 40}
INPUTS |= {"folder": 40, "packed": 60, "network": 40, "layers": 40, "log": 30, "line": 50}


def instead(monkeypatch, target, reads):
    """Another reader for a target."""
    monkeypatch.setitem(fuzz.TARGETS, target, fuzz.TARGETS[target]._replace(reads=reads))


@pytest.mark.parametrize("path", sorted(fuzz.CORPUS.glob("*.bin")), ids=lambda path: path.stem)
def test_what_once_failed(path, tmp_path):
    fuzz.tried(path.name.partition("-")[0], path.read_bytes(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "inputs"), INPUTS.items())
def test_inputs_end_well_or_with_a_refusal(target, inputs, tmp_path):
    counts = fuzz.fuzz(target, inputs, 7, tmp_path)
    assert sum(counts.values()) >= 0.9 * inputs
    assert set(counts) <= {"taken", "refused"}


@pytest.mark.parametrize(
    ("message", "lack"),
    [
        ("set.npz is wrong; so it goes", "remedy"),
        ("set.npz: no array; it was read at offset 3", "remedy"),
        ("set.npz: not a zip; the call failed", "remedy"),
        ("it is wrong; mend it", "place"),
    ],
)
def test_a_refusal_without_a_place_or_a_remedy_is_a_failure(tmp_path, monkeypatch, message, lack):
    def refuses(content, folder):
        raise StagebenchError(message)

    instead(monkeypatch, "data", refuses)
    with pytest.raises(ValueError, match=f"a refusal without (a|its) {lack}"):
        fuzz.tried("data", b"", tmp_path)


@pytest.mark.parametrize(("message", "lack"), [("it is wrong; mend it", "place"), ("--json is wrong", "remedy")])
def test_a_command_line_is_refused_with_its_place_and_a_remedy(tmp_path, monkeypatch, message, lack):
    monkeypatch.setattr(targets, "invoke", lambda *words: (2, f"Usage: {message}"))
    with pytest.raises(ValueError, match=f"a refusal without (a|its) {lack}"):
        fuzz.tried("line", b"show\0--json", tmp_path)


def test_a_changed_record_reaches_the_invariants_and_the_analysis(tmp_path, monkeypatch):
    """What is sealed again does not stop at its digest."""
    whole = [Record.model_validate_json(content) for content in targets.RECORDS.values()]
    seen = {"broken": 0, "process_of": 0}

    def counted(module, name):
        wrapped = getattr(module, name)

        def counts(record, *more):
            seen[name] += all(record.but(digest=each.digest) != each for each in whole)
            return wrapped(record, *more)

        monkeypatch.setattr(module, name, counts)

    counted(run_folder, "broken")
    counted(summary, "process_of")
    fuzz.fuzz("record", 300, 7, tmp_path)
    assert seen["broken"] >= 10
    assert seen["process_of"] >= 5


def test_what_data_check_refuses_is_counted_as_refused(tmp_path):
    assert fuzz.tried("data", broken.arrays(), tmp_path) == "taken"
    assert fuzz.tried("data", b"PK", tmp_path) == "refused"


def test_a_hang_and_a_traceback_are_failures(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    waits = lambda content, folder: fuzz.time.sleep(5)  # noqa: E731
    instead(monkeypatch, "plan", waits)
    with pytest.raises(fuzz.Hang):
        fuzz.tried("plan", b"", tmp_path)
    instead(monkeypatch, "plan", lambda content, folder: sys.modules["no such"])
    with pytest.raises(KeyError):
        fuzz.tried("plan", b"", tmp_path)


def test_what_fails_is_counted_and_kept_and_the_rest_is_tried(tmp_path, monkeypatch):
    """A hang, too, which is no Exception: the shortest input of each kind of failure becomes a candidate."""

    def fails(content, folder):
        if len(content) % 3 == 0:
            raise fuzz.Hang("more than 5 s")
        if len(content) % 3 == 1:
            raise KeyError("no such")

    instead(monkeypatch, "data", fails)
    monkeypatch.setattr(fuzz, "CANDIDATES", tmp_path / "candidates")
    failures = fuzz.Failures("data")
    counts = fuzz.fuzz("data", 60, 7, tmp_path, failures)
    assert sum(counts.values()) >= 54
    assert counts["taken"] >= 5
    assert counts["failures"] == sum(failures.kinds.values()) >= 10
    assert len(list((tmp_path / "candidates").iterdir())) == len(failures.kinds) == 2


def test_a_command_starts_nothing_and_writes_below_its_folder_alone(tmp_path):
    outside = tmp_path.parent / "outside"
    assert fuzz.tried("line", f"new-adapter\0x\0-o\0{outside}".encode(), tmp_path) == "refused"
    assert not outside.exists()
    assert fuzz.tried("line", b"new-adapter\0x\0-o\0OUT", tmp_path) == "taken"
    with border.border(tmp_path), pytest.raises(border.Crossed):
        subprocess.run(["true"], check=True)
    subprocess.run(["true"], check=True)


def test_command_lines_are_of_every_command(tmp_path, monkeypatch):
    seen = set()
    instead(monkeypatch, "line", lambda content, folder: seen.add(content.split(b"\0")[0].decode(errors="replace")))
    fuzz.fuzz("line", 600, 7, tmp_path)
    assert seen >= {words[0] for words in lines.commands()}


def test_command_lines_are_mostly_understood(tmp_path, monkeypatch):
    """Most get beyond the parser, to what the command itself makes of them."""
    misused = []
    monkeypatch.setattr(targets, "misused", lambda code, output: misused.append(output.startswith("Usage: ")))
    fuzz.fuzz("line", 60, 7, tmp_path, fuzz.Failures("line"))
    assert len(misused) >= 10
    assert sum(misused) < 30, "half of them"


def asks(content, folder):
    bytes(2 << 30)


def hides(content, folder):
    try:
        asks(content, folder)
    except MemoryError as error:
        raise StagebenchError("set.npz is wrong; mend it") from error


@pytest.mark.parametrize(("reads", "kind"), [(asks, MemoryError), (hides, ValueError)])
def test_an_allocation_beyond_the_bound_is_a_failure(tmp_path, monkeypatch, reads, kind):
    instead(monkeypatch, "data", reads)
    with pytest.raises(kind):
        fuzz.tried("data", b"", tmp_path)


def believes(path, archive, name, kinds):
    with archive.open(f"{name}.npy") as stream:
        return np.lib.format.read_array(stream)


@pytest.mark.parametrize(
    ("target", "module", "mistake"),
    [("data", array_files, {"_whole": believes}), ("mnist", array_files, {"refuse_bomb": lambda path, size: None})],
)
def test_a_reader_that_believes_a_header_is_found(target, module, mistake, tmp_path, monkeypatch):
    for name, value in mistake.items():
        monkeypatch.setattr(module, name, value)
    with pytest.raises(MemoryError):
        fuzz.tried(target, (fuzz.CORPUS / f"{target}-huge.bin").read_bytes(), tmp_path)
