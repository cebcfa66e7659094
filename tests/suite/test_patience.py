"""A session whose disk refuses for a while waits, says so once, and goes on; or it ends by name."""

import errno
import os
import re
from pathlib import Path

import pytest

from suite.errors import Interrupted, StoreError
from suite.processes import attempt, bundle
from suite.results import run_folder
from suite.session import patience
from suite.session.resumable import Settings
from tests.suite.measuring import SETTINGS, Listener, case, run
from tests.support.errors import raising


class Disk:
    """Refuses what is written below the folders until somebody has waited so many times; Ctrl-C comes in a wait."""

    def __init__(self, *folders, number=errno.ENOSPC, times=2, stopped=None):
        self.folders, self.number, self.times, self.stopped = tuple(map(str, folders)), number, times, stopped
        self.now, self.waits, self._fsync = 1000.0, 0, os.fsync

    def fsync(self, descriptor):
        if self.waits < self.times and os.readlink(f"/proc/self/fd/{descriptor}").startswith(self.folders):
            raise OSError(self.number, os.strerror(self.number))
        self._fsync(descriptor)

    def sleep(self, seconds):
        self.now, self.waits = self.now + seconds, self.waits + 1
        if self.waits == self.stopped:
            raise KeyboardInterrupt

    def clock(self):
        return self.now


@pytest.fixture
def refusing(monkeypatch):
    def made(*args, **options):
        disk = Disk(*args, **options)
        monkeypatch.setattr(os, "fsync", disk.fsync)
        monkeypatch.setattr(patience, "sleep", disk.sleep)
        monkeypatch.setattr(patience, "monotonic", disk.clock)
        return disk

    return made


class Told(Listener):
    """What was said of waiting."""

    def __init__(self):
        super().__init__()
        self.waited = []

    def note(self, why, further=0):
        self.waited.append(why)


@pytest.mark.parametrize("name", ["attempts", "records", "proofs"])
def test_a_disk_that_is_full_for_a_while_ends_nothing(folder, refusing, name, tmp_path, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    disk, told = refusing(folder.path / name), Told()
    settings = Settings() if name == "proofs" else SETTINGS
    assert run(folder, [case(), case(batch=3)], told, settings) == {"ok": 4}
    assert disk.waits == 2
    (said,) = told.waited
    place = re.escape(str(folder.path / name))
    assert re.fullmatch(
        rf"cannot write {place}/\S+: No space left on device; it is tried again for 10 minutes: free some space, or "
        "bring the disk back, and the run goes on",
        said,
    )


@pytest.mark.parametrize(
    ("looks", "place", "what"),
    [(attempt, "r0", "prepare"), (run_folder, "r0", "make"), (run_folder, "rproof", "make")],
)
def test_what_has_no_room_waits_before_anything_is_started(folder, refusing, tmp_path, monkeypatch, looks, place, what):
    """A proof, too: without one its case would be measured all the same, and compared with nothing."""
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    disk, told, write = refusing(), Told(), looks.probe

    def refused(folder):
        if disk.waits < disk.times:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        write(folder)

    monkeypatch.setattr(looks, "probe", refused)
    assert run(folder, [case()], told, Settings(proofs=place == "rproof")) == {"ok": 2}
    assert [why.partition(";")[0] for why in told.waited] == [
        f"cannot {what} {folder.path}/attempts/{case().id}-{place}: Disk quota exceeded"
    ]
    assert bool(folder.record(case().id, 0).proof) == (place == "rproof")


def test_what_cannot_be_read_for_a_record_is_waited_for(folder, refusing, monkeypatch):
    """The bundle: a record holds its digest."""
    disk, told, digests = refusing(), Told(), bundle.digests

    def refused(found):
        if told.order and disk.waits < disk.times:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return digests(found)

    monkeypatch.setattr(bundle, "digests", refused)
    assert run(folder, [case()], told) == {"ok": 2}
    (why,) = told.waited
    assert why.startswith(f"cannot read the bundle {folder.path}/bundles/reference: Stale file handle;")


def test_a_record_that_cannot_be_read_for_a_while_is_not_invalid(folder, refusing, monkeypatch):
    run(folder, [case()])
    disk, told, read = refusing(number=errno.EIO), Told(), Path.read_bytes

    def refused(path):
        if path.parent.name == "records" and disk.waits < disk.times:
            raise OSError(disk.number, os.strerror(disk.number))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    with raising(StoreError, "/records/", "Input/output error"):
        folder.unusable()
    assert run(folder, [case()], told) == {"ok": 2}
    assert (told.order, len(told.waited), (folder.path / "invalid").exists()) == ([], 1, False)
    disk.number, disk.waits = errno.EACCES, 0
    whys = [re.sub("^.*: ", "", why) for why in folder.unusable()]
    assert whys == ["Permission denied; it is measured again when the run goes on"] * 2


def test_a_disk_that_stays_full_ends_the_run_by_name_with_what_was_measured(folder, refusing):
    run(folder, [case()])
    before, disk, told = list(folder.records()), refusing(folder.path / "records", times=10**6), Told()
    with pytest.raises(StoreError, match=r"^cannot write .*: No space left on device; what was measured before is kep"):
        run(folder, [case(), case(batch=3)], told)
    assert (disk.waits * patience.AGAIN, len(told.waited)) == (patience.PATIENCE, 1)
    assert list(folder.records()) == before


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOENT, errno.EACCES])
def test_what_does_not_pass_by_itself_is_not_waited_for(folder, refusing, number):
    disk, told = refusing(folder.path / "records", number=number), Told()
    with pytest.raises(StoreError, match=rf"^cannot write .*: {os.strerror(number)}; "):
        run(folder, [case()], told)
    assert (disk.waits, told.waited) == (0, [])


@pytest.mark.parametrize(("times", "kept"), [(1, ["ok"]), (2, [])])
def test_whoever_stops_the_wait_loses_no_measurement_that_can_be_kept(folder, refusing, times, kept):
    """It is written a last time."""
    refusing(folder.path / "records", times=times, stopped=1)
    with raising(Interrupted, len(kept), 2):
        run(folder, [case()])
    assert [record.outcome for record in folder.records()] == kept


def test_whoever_stops_the_wait_for_an_attempt_is_told_how_to_go_on(folder, refusing):
    """Though the disk does not take the note of it either."""
    refusing(folder.path / "attempts", folder.path / "records", stopped=1)
    with raising(Interrupted, 0, 2):
        run(folder, [case()])
    assert folder.record_names() == []
    assert run(folder, [case()]) == {"ok": 2}
