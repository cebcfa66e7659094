"""A session whose folder vanishes, whose disk is full or fails or refuses for a while, or beside another session."""

import contextlib
import errno
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stagebench.suite.errors import Interrupted, RequestError, StoreError
from stagebench.suite.processes import attempt, bundle
from stagebench.suite.results import run_folder, stored
from stagebench.suite.results.collect import collect
from stagebench.suite.results.records import About
from stagebench.suite.results.run_folder import RunFolder, held
from stagebench.suite.session import patience, resumable
from stagebench.suite.session.resumable import Settings
from stagebench.suite.worker import messages
from tests.suite.measuring import SETTINGS, TWICE, Listener, case, run
from tests.support.errors import raising


@pytest.fixture(scope="module")
def measured_twice(tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("measured") / "run").begin(About(plan="test"), "plan")
    run(folder, [case(sampling=TWICE)])
    return folder.path


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\x00", b'{"format": 99}', None])
def test_what_is_no_record_is_kept_aside_and_measured_again(measured_twice, tmp_path, content):
    """None: another repeat's record, whole and unchanged."""
    folder, twice = RunFolder.open(shutil.copytree(measured_twice, tmp_path / "run")), case(sampling=TWICE)
    records = folder.path / "records"
    path, other = (records / f"{twice.id}-r{repeat}.json" for repeat in (1, 0))
    path.write_bytes(content or other.read_bytes())
    assert [path.name in why for why in RunFolder.open(folder.path).unusable()] == [True]
    again = Listener()
    assert run(folder, [twice], again) == {"ok": 2}
    assert again.order == [(2, 1)]
    assert [kept.read_bytes() for kept in (folder.path / "invalid").iterdir()] == [content or other.read_bytes()]
    assert RunFolder.open(folder.path).unusable() == []


def fails(*_):
    raise OSError(errno.EIO, "Input/output error", "launcher-0.log")


def test_a_disk_that_fails_while_a_case_is_measured_is_that_case_s_end(folder):
    """And no end of the run: the other cases are measured, and this one when the run is resumed with --retry."""
    listener = Listener()
    listener.message = lambda case, *_: fails() if case.batch == 2 else None
    assert run(folder, [case(), case(batch=3)], listener) == {"crash": 1, "ok": 1}
    reason = folder.record(case().id, 0).reason
    assert re.match(r"the disk failed meanwhile: .*Input/output error: 'launcher-0.log'; measure it again with", reason)
    assert run(folder, [case(), case(batch=3)], settings=replace(SETTINGS, retry=True)) == {"ok": 2}


@pytest.mark.parametrize("moment", ["started", "finished"])
def test_a_disk_that_fails_where_no_one_looked_is_one_message(folder, moment):
    listener = Listener()
    setattr(listener, moment, fails)
    with pytest.raises(StoreError, match=rf"{folder.path}: .*launcher-0.log.*; what was"):
        run(folder, [case()], listener)


def test_what_a_rank_reports_and_is_no_figure_is_a_crash_by_name(folder, monkeypatch):
    """And no end of the run: the other cases are measured."""
    whole = resumable.rank_of

    def rank_of(rank, sent):
        native = next((each for each in sent if isinstance(each, messages.Pass)), None)
        if native and native.samples == 2 * len(native.step_s):  # of the case of batch 2
            sent = [*sent, native._replace(step_s=[math.nan] * len(native.step_s))]
        return whole(rank, sent)

    monkeypatch.setattr(resumable, "rank_of", rank_of)
    assert run(folder, [case(), case(batch=3)]) == {"crash": 1, "ok": 1}
    broken = folder.record(case().id, 0)
    assert broken.reason.startswith("what its ranks reported cannot be kept: ")
    assert "step_s.0: Input should be a valid number" in broken.reason
    assert broken.ranks == ()


def test_a_record_that_would_be_too_large_to_read_again_is_a_crash_by_name(folder, monkeypatch):
    """And no end of the run, and not measured again at every resume."""
    run(folder, [case()])
    without_figures = folder.record(case().id, 0).but(ranks=(), evidence=None, reason="x" * 300)
    monkeypatch.setattr(stored, "LARGEST", len(without_figures.model_dump_json(indent=1)))
    assert run(folder, [case(batch=3)]) == {"crash": 1}
    reason = folder.record(case(batch=3).id, 0).reason
    assert re.fullmatch(
        r"its record cannot be kept: it has \d+ bytes, more .*; lower `steps`, `seconds` or `epochs`", reason
    )


@pytest.mark.parametrize("when", ["started", "message", "finished", "proving"])
def test_a_run_folder_that_vanishes_ends_the_session_by_name(folder, when, tmp_path, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    remover = Listener()
    setattr(remover, when, lambda *_: shutil.rmtree(folder.path, ignore_errors=True))
    with pytest.raises(StoreError, match=f"{folder.path}") as error:
        run(folder, [case()], remover, Settings(proofs=when == "proving"))
    assert remover.ended == 1
    assert "\n" not in str(error.value)
    assert not folder.path.exists(), "nothing is made anew where it stood"


def test_a_second_session_in_the_same_folder_is_refused(folder):
    program = (
        "import sys; from pathlib import Path; from stagebench.suite.results.run_folder import held\n"
        "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    tokens, checkout = [sys.executable, "-c", program, str(folder.path)], Path(__file__).parents[2]
    with subprocess.Popen(tokens, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=checkout) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(RequestError, match="another session"):
            run(folder, [case()])
        other.stdin.close()


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = tmp_path / "disk"
    mounted.mkdir()
    # Two runs take 0.7 MB of it, the adapter's own sources half of that, which grow.
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", mounted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine refuses to mount a tmpfs: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def test_a_full_disk_is_told_and_loses_nothing(small_disk, monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE", 0.0)
    folder = RunFolder(small_disk / "run").begin(About(), "plan")
    run(folder, [case()])
    with contextlib.suppress(OSError):
        (small_disk / "filler").write_bytes(bytes(8 << 20))  # as far as it goes
    before = list(folder.records())
    with pytest.raises(StoreError, match="what was measured before is kept"):
        run(folder, [case(batch=3)])
    (small_disk / "filler").unlink()
    assert list(folder.records()) == before
    assert run(folder, [case(batch=3)]) == {"ok": 1}


def test_links_in_a_circle_are_no_run_folder(tmp_path):
    circle = tmp_path / "a"
    circle.symlink_to("a")
    with raising(RequestError, circle), held(circle):
        pass
    with pytest.raises(StoreError, match=rf"^cannot write {circle}: "):
        collect([max(Path(__file__).parents[1].glob("fixtures/runs/*")) / "training"], circle)


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
    assert run(folder, [case(), case(batch=3)], told, settings) == {"ok": 2}
    assert disk.waits == 2
    (said,) = told.waited
    place = re.escape(str(folder.path / name))
    assert re.fullmatch(
        rf"cannot write {place}/\S+: No space left on device; it is tried again for 10 minutes: free some space, or "
        "bring the disk back, and the run goes on",
        said,
    )


@pytest.mark.parametrize(
    ("looks", "place", "what"), [(attempt, "r0", "prepare"), (run_folder, "r0", "make"), (run_folder, "rproof", "make")]
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
    assert run(folder, [case()], told, Settings(proofs=place == "rproof")) == {"ok": 1}
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
    assert run(folder, [case()], told) == {"ok": 1}
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
    assert run(folder, [case()], told) == {"ok": 1}
    assert (told.order, len(told.waited), (folder.path / "invalid").exists()) == ([], 1, False)
    disk.number, disk.waits = errno.EACCES, 0
    whys = [re.sub("^.*: ", "", why) for why in folder.unusable()]
    assert whys == ["Permission denied; it is measured again when the run goes on"]


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
        run(folder, [case(sampling=TWICE)])
    assert [record.outcome for record in folder.records()] == kept


def test_whoever_stops_the_wait_for_an_attempt_is_told_how_to_go_on(folder, refusing):
    """Though the disk does not take the note of it either."""
    refusing(folder.path / "attempts", folder.path / "records", stopped=1)
    with raising(Interrupted, 0, 1):
        run(folder, [case()])
    assert folder.record_names() == []
    assert run(folder, [case()]) == {"ok": 1}
