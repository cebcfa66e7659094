"""A session whose folder vanishes, whose disk is full or fails, whose records are none, or beside another session."""

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

from suite.errors import RequestError, StoreError
from suite.results import stored
from suite.results.collect import collect
from suite.results.records import About
from suite.results.run_folder import RunFolder, held
from suite.session import patience, resumable
from suite.session.resumable import Settings
from suite.worker import messages
from tests.suite.measuring import SETTINGS, Listener, case, run
from tests.support.errors import raising

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\x00", b'{"format": 99}', None])
def test_what_is_no_record_is_kept_aside_and_measured_again(folder, content):
    """None: another repeat's record, whole and unchanged."""
    run(folder, [case()])
    records = folder.path / "records"
    path, other = (records / f"{case().id}-r{repeat}.json" for repeat in (1, 0))
    path.write_bytes(content or other.read_bytes())
    assert [path.name in why for why in RunFolder.open(folder.path).unusable()] == [True]
    again = Listener()
    assert run(folder, [case()], again) == {"ok": 2}
    assert again.order == [(2, 1)]
    assert [kept.read_bytes() for kept in (folder.path / "invalid").iterdir()] == [content or other.read_bytes()]
    assert RunFolder.open(folder.path).unusable() == []


def fails(*_):
    raise OSError(errno.EIO, "Input/output error", "launcher-0.log")


def test_a_disk_that_fails_while_a_case_is_measured_is_that_case_s_end(folder):
    """And no end of the run: the other cases are measured, and this one when the run is resumed with --retry."""
    listener = Listener()
    listener.message = lambda case, *_: fails() if case.batch == 2 else None
    assert run(folder, [case(), case(batch=3)], listener) == {"crash": 2, "ok": 2}
    reason = folder.record(case().id, 0).reason
    assert re.match(r"the disk failed meanwhile: .*Input/output error: 'launcher-0.log'; measure it again with", reason)
    assert run(folder, [case(), case(batch=3)], settings=replace(SETTINGS, retry=True)) == {"ok": 4}


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
    assert run(folder, [case(), case(batch=3)]) == {"crash": 2, "ok": 2}
    broken = folder.record(case().id, 0)
    assert broken.reason.startswith("what its ranks reported cannot be kept: ")
    assert "step_s.0: Input should be a valid number" in broken.reason
    assert broken.ranks == ()


def test_a_record_that_would_be_too_large_to_read_again_is_a_crash_by_name(folder, monkeypatch):
    """And no end of the run, and not measured again at every resume."""
    run(folder, [case()])
    without_figures = folder.record(case().id, 0).but(ranks=(), evidence=None, reason="x" * 300)
    monkeypatch.setattr(stored, "LARGEST", len(without_figures.model_dump_json(indent=1)))
    assert run(folder, [case(batch=3)]) == {"crash": 2}
    reason = folder.record(case(batch=3).id, 0).reason
    assert re.fullmatch(
        r"its record cannot be kept: it has \d+ bytes, more .*; lower `steps`, `seconds` or `epochs`", reason
    )


class Remover(Listener):
    """Removes the run folder when a rank reports, or before it starts."""

    def __init__(self, folder, when):
        super().__init__()
        self.path, self.when = folder.path, when

    def started(self, case, repeat):
        super().started(case, repeat)
        if self.when == "before":
            shutil.rmtree(self.path)

    def message(self, case, rank, message):
        if self.when == "meanwhile" and self.path.exists():
            shutil.rmtree(self.path)

    def finished(self, *about):
        super().finished(*about)
        if self.when == "finished":
            shutil.rmtree(self.path)

    def proving(self, case):
        if self.when == "proving":
            shutil.rmtree(self.path)


@pytest.mark.parametrize("when", ["before", "meanwhile", "finished", "proving"])
def test_a_run_folder_that_vanishes_ends_the_session_by_name(folder, when, tmp_path, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    remover = Remover(folder, when)
    with pytest.raises(StoreError, match=f"{folder.path}") as error:
        run(folder, [case()], remover, Settings(proofs=when == "proving"))
    assert remover.ended == 1
    assert "\n" not in str(error.value)
    assert not folder.path.exists(), "nothing is made anew where it stood"


def test_a_second_session_in_the_same_folder_is_refused(folder):
    program = (
        "import sys; from pathlib import Path; from suite.results.run_folder import held\n"
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


def fill(path) -> None:
    """Write until the disk is full."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(descriptor, b"x" * 4096):
            pass
    os.close(descriptor)


def test_a_full_disk_is_told_and_loses_nothing(small_disk, monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE", 0.0)
    folder = RunFolder(small_disk / "run").begin(About(), "plan")
    run(folder, [case()])
    fill(small_disk / "filler")
    before = list(folder.records())
    with pytest.raises(StoreError, match="what was measured before is kept"):
        run(folder, [case(batch=3)])
    (small_disk / "filler").unlink()
    assert list(folder.records()) == before
    assert run(folder, [case(batch=3)]) == {"ok": 2}


def test_links_in_a_circle_are_no_run_folder(tmp_path):
    circle = tmp_path / "a"
    circle.symlink_to("a")
    with raising(RequestError, circle), held(circle):
        pass
    with pytest.raises(StoreError, match=rf"^cannot write {circle}: "):
        collect([max(RUNS.iterdir()) / "training"], circle)
