"""Places that a person names: unusable ones, and one that another session holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suite.cache import cache_folder
from suite.errors import RequestError, StoreError
from suite.results.lock import held
from suite.results.records import About
from suite.results.run_folder import RunFolder


@pytest.mark.parametrize("below", ["", "run", "a/run"])
def test_a_file_is_no_place_for_a_run(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / below
    with pytest.raises(RequestError, match=r"cannot be a run folder: .*with -o"), held(place):
        pass
    with pytest.raises(RequestError, match="cannot be a run folder"):
        RunFolder(place).begin(About(), "plan")


@pytest.mark.parametrize("place", [Path("/proc/x"), Path("x" * 300)])
def test_neither_is_a_place_that_the_system_refuses(tmp_path: Path, place: Path) -> None:
    with pytest.raises(RequestError, match="cannot be a run folder"), held(tmp_path / place):
        pass


def test_an_attempt_that_cannot_have_its_folder_is_a_store_error(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").begin(About(), "plan")
    (folder.path / "attempts").rmdir()
    (folder.path / "attempts").write_text("")
    with pytest.raises(StoreError, match="what was measured before is kept"):
        folder.attempt("0" * 12, 0)


@pytest.mark.parametrize("place", ["/proc/x", __file__])
def test_an_unusable_cache_names_its_variable(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("STAGEBENCH_CACHE", place)
    with pytest.raises(RequestError, match=rf"{place}/proofs cannot be made: .*; set STAGEBENCH_CACHE to"):
        cache_folder("proofs")


HOLD = """
import sys
from pathlib import Path
from suite.results.lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


def test_a_second_session_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    place = tmp_path / "run"
    command = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RequestError, match=rf"in use by another session \(process {other.pid}\)"), held(place):
            pass
        (place / ".lock").write_text("")
        with pytest.raises(RequestError, match=r"\(process unknown\); wait for it"), held(place):
            pass
        other.communicate("\n")
    with held(place):  # it has ended: nothing is left to clean up
        assert (place / ".lock").read_text() == f"{os.getpid()}\n"
        assert RunFolder(place).path.is_dir()
