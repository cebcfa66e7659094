import re
import stat
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.processes import interpreters as environments
from tests.support.started import wait_until

CHECKOUT = Path(__file__).parents[2]


class Wanting(Adapter):
    contract = 4
    name, title, package = "wanting", "Wanting", "x"
    environment, remedy = "wanting", "tox run -e wanting"
    capabilities = None

    def __init__(self, *requires):
        self.requires = requires


HERE = Wanting("pluggy")  # which the running interpreter has
NOWHERE = Wanting("no_such_framework")


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No environments but the test's own."""
    monkeypatch.setenv(environments.TOX_DIR, str(tmp_path / "tox"))
    monkeypatch.delenv("STAGEBENCH_PYTHON_WANTING", raising=False)
    environments.examine.cache_clear()


@pytest.fixture
def tox_environment(tmp_path):
    """A real virtual environment; its NumPy and framework are files of those names."""
    folder = tmp_path / "tox" / "wanting"
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in ("numpy", "no_such_framework"):
        (packages / f"{name}.py").write_text("raise RuntimeError('imported by the controller')\n")
    return folder / "bin" / "python"


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_running_interpreter_is_taken_when_it_has_all(tmp_path):
    found = environments.find(HERE)
    assert (found.path, found.origin) == (Path(sys.executable), "the running interpreter")
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert set(found.packages) == {"numpy", "pluggy"}
    assert re.fullmatch(r"\d+\.\d+.*", found.packages["pluggy"])


def test_the_tox_environment_comes_first_and_the_survey_tells_of_every_place(tox_environment):
    found = environments.find(NOWHERE)
    assert (found.path, found.origin) == (tox_environment, "tox environment wanting")
    assert found.path.is_symlink()  # resolved, it would be another environment's
    assert found.packages == {"numpy": "", "no_such_framework": ""}
    (tox, problem), (running, other) = environments.survey(NOWHERE)
    assert (tox.path, problem) == (tox_environment, None)
    assert (running.origin, other) == ("the running interpreter", "has no no_such_framework")


def test_a_tox_environment_that_lacks_something_is_told_when_nothing_else_has_it(tox_environment):
    with pytest.raises(Unavailable) as error:
        environments.find(Wanting("no_such_framework", "nor_this"))
    assert str(error.value) == (
        "wanting: no interpreter has NumPy and no_such_framework and nor_this: "
        f"tox environment wanting ({tox_environment}) has no nor_this; "
        f"the running interpreter ({sys.executable}) has no no_such_framework and no nor_this. "
        "Make its environment with `tox run -e wanting`, or name one with --python wanting=/path/to/python"
    )


def test_remedies_are_told_with_their_remarks():
    slow = SimpleNamespace(name="slow", environment=None, remedy="tox run -e slow  # takes: ten minutes")
    found = environments.remedy(slow)
    assert found.startswith("Make its environment with `tox run -e slow` (takes: ten minutes), or name one with")
    with pytest.raises(environments.MissingRequirement, match=r"^wanting: no libbanana.so .*; apt install libbanana$"):
        environments.find(Libraryless("pluggy"))


def test_a_setting_goes_before_a_variable_and_that_before_tox(tox_environment, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_PYTHON_WANTING", sys.executable)
    assert environments.find(HERE).origin == "STAGEBENCH_PYTHON_WANTING"
    found = environments.find(NOWHERE, {"wanting": str(tox_environment), "other": "/x"})
    assert (found.path, found.origin) == (tox_environment, "--python wanting")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "is not an executable file"),
        ("exit 3", "ended with exit code 3: it printed nothing"),
        ("echo broken >&2; exit 1", "ended with exit code 1: broken"),
        ("echo hello", "is not a Python interpreter: hello"),
        ("sleep 60", "did not answer within 0.4 s"),
        (f'exec {sys.executable} "$@"', "has no no_such_framework"),
    ],
)
def test_an_explicit_setting_that_does_not_work_is_never_passed_over(
    tox_environment, tmp_path, monkeypatch, text, problem
):
    monkeypatch.setattr(environments, "SECONDS", 0.4 if text == "sleep 60" else 300)
    path = tmp_path / "python" if text is None else script(tmp_path / "python", text)
    with pytest.raises(RequestError, match=re.escape(f"wanting: --python wanting is {path}, which {problem}")):
        environments.find(NOWHERE, {"wanting": str(path)})


def test_an_interpreter_that_does_not_answer_or_whose_asker_was_killed_leaves_nothing_running(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "SECONDS", 3.0)
    path = script(tmp_path / "python", f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    assert environments.examine(path, ()) == "did not answer within 3 s"
    wait_until(lambda: not runs(int((tmp_path / "pid").read_text())))
    (tmp_path / "pid").unlink()
    path = script(tmp_path / "python", f"sleep 600 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait")
    program = f"from stagebench.suite.processes.query import ask; ask([{str(path)!r}], 600)"
    with subprocess.Popen([sys.executable, "-c", program], cwd=CHECKOUT) as asker:
        wait_until((tmp_path / "pid").exists)
        asker.kill()
    wait_until(lambda: not runs(int((tmp_path / "pid").read_text())))


def runs(pid):
    """Whether a process is there, and more than unreaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_interpreter_is_asked_once_and_what_its_start_up_files_print_is_passed_over(tmp_path):
    path = script(tmp_path / "python", f'echo loaded; echo asked >> {tmp_path}/count; exec {sys.executable} "$@"')
    for _ in range(3):
        assert environments.find(HERE, {"wanting": str(path)}).path == path
    assert (tmp_path / "count").read_text() == "asked\n"


@pytest.mark.parametrize(("variable", "site"), [("PYTHONPATH", ""), ("PYTHONUSERBASE", "lib/python3.1/site-packages")])
def test_our_own_path_is_not_lent_and_the_folder_that_a_framework_is_in_is_named(tmp_path, monkeypatch, variable, site):
    (tmp_path / site / "no_such_framework").mkdir(parents=True)
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unavailable, match=f"{variable} has no_such_framework in {tmp_path / site}, "):
        environments.find(NOWHERE)


@pytest.mark.parametrize("site", ["site-packages", "dist-packages"])
def test_a_python_of_path_that_has_the_framework_is_named(tmp_path, monkeypatch, site):
    """As an environment module puts it there."""
    (tmp_path / "lib" / "python3.1" / site / "no_such_framework").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.chdir(tmp_path)
    assert environments.on_path(["no_such_framework"]) == "", "no Python"
    python = script(tmp_path / "bin" / "python3", "")
    with pytest.raises(Unavailable, match=f"PATH has {python} with no_such_framework, "):
        environments.find(NOWHERE)


def test_environments_are_looked_for_here_and_in_the_checkout(tmp_path, monkeypatch):
    monkeypatch.delenv(environments.TOX_DIR)
    monkeypatch.chdir(tmp_path)
    assert environments.tox_folders() == [tmp_path / ".tox", environments.CHECKOUT / ".tox"]


@pytest.mark.parametrize("version", ["3.6", "3.8"])
def test_old_interpreters_answer_too(version):
    old = next(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), None)
    if old is None:
        pytest.skip(f"no Python {version} among pyenv's")
    probe = environments.examine(old, ("json", "no_such_framework"))
    assert probe.version.startswith(version)
    assert (list(probe.packages), probe.missing) == (["json"], ("no_such_framework",))
    assert re.match(r"\d+\.", environments.examine(old, ("pip",)).packages["pip"])


class Libraryless(Wanting):
    def missing(self, interpreter):
        return f"no libbanana.so for {interpreter.name}; apt install libbanana"
