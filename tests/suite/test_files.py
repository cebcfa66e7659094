"""Names that cannot leave their folder, what a folder refuses, and what stands on the disk should the power fail."""

import errno
import os
from pathlib import Path

import pytest

from stagebench.suite.errors import StoreError
from stagebench.suite.files import ROOM, file_name, flush_folder, probe, write_whole
from stagebench.suite.results.collect import collect
from stagebench.suite.results.records import About
from stagebench.suite.results.run_folder import RunFolder, held
from tests.reports.made_run import MadeRun, case_of


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("pytorch", "ddp"), "pytorch-ddp"),
        (("../../etc/passwd",), "_.._etc_passwd"),
        (("a", ".hidden"), "a-hidden"),
        (("-rf", "x"), "rf-x"),
        (("ends.", "Xa"), "ends.-Xa"),  # only what is in front is taken away
        (("X-Z",), "X-Z"),
        (("a b\n\x1b[2J",), "a_b_2J"),
        (("...", ""), "unnamed"),
        (("a" * 201,), "a" * 200),
    ],
)
def test_a_name_of_foreign_words_stays_in_its_folder(words, name):
    assert file_name(*words) == name


def test_what_a_folder_refuses_is_named(tmp_path):
    path = tmp_path / "gone" / "record.json"
    with pytest.raises(StoreError) as caught:
        write_whole(path, "{}")
    assert str(caught.value) == f"cannot write {path}: No such file or directory; {ROOM}"
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        flush_folder(tmp_path / "file")


def test_room_is_looked_for_in_the_folder_itself(tmp_path):
    probe(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        probe(tmp_path / "gone")


Calls = list[tuple[str, ...]]


@pytest.fixture
def calls(monkeypatch):
    """What is flushed, renamed and made, each with its place; of a file that is flushed, what it holds by then."""
    found: Calls = []

    def noted(name, told):
        real = getattr(os, name)

        def call(*given, **more):
            found.append((name, *map(str, told(*given))))
            return real(*given, **more)

        monkeypatch.setattr(os, name, call)

    def flushed(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        return [path] if path.is_dir() else [path, path.read_text()]

    noted("fsync", flushed)
    noted("replace", lambda old, new: [old, new])
    noted("rename", lambda old, new: [old, new])
    noted("mkdir", lambda path, *_: [path])
    noted("sync", list)
    return found


def whole(path: Path, text: str) -> Calls:
    """A file that is written whole: all of it is on the disk before it has its name, and then its name is."""
    partial = f"{path}.{os.getpid()}.partial"
    return [("fsync", partial, text), ("replace", partial, str(path)), ("fsync", str(path.parent))]


@pytest.mark.parametrize("content", ["new", b"new"])
def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, calls, content):
    write_whole(tmp_path / "file", content)
    assert calls == whole(tmp_path / "file", "new")


@pytest.mark.parametrize("refused", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_flush_folders_is_written_all_the_same(tmp_path, monkeypatch, refused):
    real = os.fsync

    def fsync(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(refused, os.strerror(refused))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize("refused", [1, 2])
def test_a_disk_that_cannot_flush_leaves_a_whole_file_and_nothing_beside_it(tmp_path, monkeypatch, refused):
    """The old one, where it was to flush the new one; the new one, where its folder was to be flushed."""
    times = 0

    def fsync(descriptor):
        nonlocal times
        times += 1
        if times == refused:
            raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreError, match=r"^cannot write .*: Input/output error; "):
        write_whole(tmp_path / "file", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", ["old", "new"][refused - 1])]


def test_what_is_kept_aside_is_there_before_another_one_takes_its_place(run, calls):
    record = run.folder.record(run.proven(case_of()).id, 0)
    assert record is not None
    path, aside = run.folder.path / "records" / f"{record.case_id}-r0.json", run.folder.path / "invalid"
    path.write_text("{")
    calls.clear()
    run.folder.write_record(record)
    assert calls[:5] == [
        ("mkdir", str(aside)),
        ("rename", str(path), str(aside / f"{path.stem}.0.json")),
        *(("fsync", str(folder)) for folder in (aside, path.parent, run.folder.path)),
    ]
    assert calls[5:8] == whole(path, path.read_text())


def test_a_run_folder_is_in_the_folder_around_it_before_anything_is_written_there(tmp_path, calls):
    with held(tmp_path / "run"):
        assert calls == [("mkdir", str(tmp_path / "run")), ("fsync", str(tmp_path))]
        calls.clear()
        RunFolder(tmp_path / "run").begin(About(id="a"), "plan")
    assert [call for call in calls if call[0] != "mkdir"][-3:] == whole(tmp_path / "run" / "plan.toml", "plan")


def test_what_is_collected_is_on_the_disk_before_it_has_its_name(tmp_path, calls):
    runs = [MadeRun(tmp_path / str(batch)) for batch in (8, 16)]
    for each, batch in zip(runs, (8, 16), strict=True):
        each.proven(case_of(batch=batch))
    calls.clear()
    assert collect([each.folder.path for each in runs], tmp_path / "all") > 0
    written, (name, old, new), around = calls[-3:]
    assert written == ("sync",)
    assert (name, Path(old).name, new) == ("rename", "run", str(tmp_path / "all"))
    assert around == ("fsync", str(tmp_path))
