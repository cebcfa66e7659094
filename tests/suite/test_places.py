"""Places that a person names: unusable ones, and one that another session holds."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stagebench.suite.errors import RequestError, StoreError, Unavailable
from stagebench.suite.files import cache_folder, cache_root, expanded, scratch, write_whole
from stagebench.suite.results.records import About, this_host
from stagebench.suite.results.run_folder import RunFolder, held
from tests.support.errors import raising


@pytest.mark.parametrize("place", ["file", "file/run", "file/a/run", "/proc/x", "x" * 300])
def test_a_file_or_what_the_system_refuses_is_no_place_for_a_run(tmp_path, place):
    (tmp_path / "file").write_text("")
    place = tmp_path / place
    with pytest.raises(RequestError, match="run folder"), held(place):
        pass
    with pytest.raises(RequestError, match="run folder"):
        RunFolder(place).begin(About(), "plan")


def test_an_attempt_that_cannot_have_its_folder_is_a_store_error(tmp_path):
    folder = RunFolder(tmp_path / "run").begin(About(), "plan")
    (folder.path / "attempts").rmdir()
    (folder.path / "attempts").write_text("")
    with pytest.raises(StoreError, match="what was measured before is kept"):
        folder.attempt("0" * 12, 0)


@pytest.mark.parametrize("place", ["/proc/x", __file__])
def test_an_unusable_cache_names_its_variable(monkeypatch, place):
    monkeypatch.setenv("STAGEBENCH_CACHE", place)
    with pytest.raises(RequestError, match=rf"{place}/proofs cannot be made: .*; set STAGEBENCH_CACHE to"):
        cache_folder("proofs")


@pytest.mark.parametrize(
    ("name", "kept"),
    [("vm-1.site", "vm-1.site"), ("my host!", "my_host_"), ("../x", "_x"), ("-o", "o"), ("", "unnamed"), ("é", "_")],
)
def test_a_host_is_kept_under_a_name_that_a_file_can_have(monkeypatch, name, kept):
    """A system calls itself as it likes."""
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert this_host().host == kept


def test_a_user_whom_nothing_knows_has_a_folder_for_temporary_files(monkeypatch, tmp_path):
    for name in ("HOME", "XDG_CACHE_HOME", "STAGEBENCH_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 123456789)
    instead = Path(tempfile.gettempdir(), "stagebench-123456789")
    assert cache_root() == instead
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/sys")  # where nobody writes, as in a home that is mounted to be read
    assert cache_root() == instead
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "stagebench"


def test_a_machine_without_a_place_for_temporary_files_and_an_unknown_home_say_so(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc/none")
    with pytest.raises(Unavailable, match="TMPDIR"), scratch():
        pass
    assert expanded("~no-such-user/set.npz") == Path("~no-such-user/set.npz")


def test_a_file_is_not_written_through_what_stands_in_its_way(tmp_path):
    path, other = tmp_path / "x.json", tmp_path / "other"
    beside = tmp_path / f"x.json.{os.getpid()}.partial"
    other.write_text("mine")
    beside.symlink_to(other)
    write_whole(path, "1")
    os.mkfifo(beside)
    write_whole(path, "2")
    assert (path.read_text(), other.read_text(), beside.exists()) == ("2", "mine", False)


HOLD = """
import sys
from pathlib import Path
from stagebench.suite.results.run_folder import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


@pytest.mark.parametrize("refused", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_refused_by_name(tmp_path, monkeypatch, refused):
    def flock(*_):
        raise OSError(refused, os.strerror(refused))

    monkeypatch.setattr(fcntl, "flock", flock)
    with raising(RequestError, tmp_path, os.strerror(refused)), held(tmp_path):
        pass


def test_a_second_session_is_refused_and_told_who_holds_the_folder(tmp_path):
    place = tmp_path / "run"
    command = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with raising(RequestError, other.pid), held(place):
            pass
        (place / ".lock").write_text("")
        with pytest.raises(RequestError, match="process unknown"), held(place):
            pass
        other.communicate("\n")
    with held(place):  # it has ended: nothing is left to clean up
        assert (place / ".lock").read_text() == f"{os.getpid()} on {socket.gethostname()}\n"
        assert RunFolder(place).path.is_dir()
