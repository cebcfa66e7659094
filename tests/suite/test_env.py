"""`stagebench env` and `stagebench quickstart`: real environments of a package of the test's own, without an index."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from stagebench.suite.cli import quickstart
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.processes import environments, interpreters
from stagebench.suite.text import installing
from tests.support.errors import raising
from tests.support.started import wait_until

HEAD = '# /// environment\n# python = "3.11-3.14"\n# disk_mb = 20\n# download_mb = 1\n# ///\n'
BUILT = HEAD.replace("# ///\n", '# then = ["../build.py", "alpha"]\n# ///\n')


@pytest.fixture
def alpha(toys, tmp_path, monkeypatch):
    """The toy adapter's environment: its framework and NumPy are wheels of one line in a folder."""
    home, wheels, package = tmp_path / "home", tmp_path / "wheels", tmp_path / "toy_of_env"
    for folder in (home, wheels, package):
        folder.mkdir()
    (package / "__init__.py").write_text("")
    wheel(wheels, "no_such_framework")
    wheel(wheels, "numpy")
    (tmp_path / "build.py").write_text("import sys\nopen(sys.prefix + '/built', 'w').write(sys.argv[1])\n")
    (package / "alpha.txt").write_text(BUILT + "# The framework.\nno_such_framework==1.0\n-r more.txt\n")
    (package / "more.txt").write_text("numpy==1.0\n")
    (package / "alpha-gpu.txt").write_text(
        HEAD.replace("20", "40").replace("= 1", "= 3") + "no_such_framework==1.0\nnumpy==1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in {
        "XDG_DATA_HOME": str(home),
        "STAGEBENCH_TOX_DIR": str(tmp_path / "tox"),
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_INDEX": "1",
        "UV_FIND_LINKS": str(wheels),
    }.items():
        monkeypatch.setenv(name, value)
    adapter = toys.adapters["alpha"]
    monkeypatch.setattr(type(adapter), "requirements", "toy_of_env/alpha.txt", raising=False)
    interpreters.examine.cache_clear()
    return package


def wheel(folder, name):
    """Write a wheel of one empty module."""
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")


def folder():
    return interpreters.made_folder() / "alpha"


def listed(stagebench):
    (row,) = (row for row in json.loads(stagebench("env", "list", "--json").out) if row["name"] == "alpha")
    return row


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_an_environment_is_made_found_listed_and_removed(alpha, toys, stagebench, tool, monkeypatch):
    if tool == "pip":
        monkeypatch.setattr(environments, "uv_program", lambda: None)
    elif not environments.uv_program():
        pytest.skip("there is no uv")
    assert listed(stagebench)["made"] == "no"
    order = environments.order("alpha")
    assert "1 MB to download" in str(order)
    environments.make(order)
    found = interpreters.find(toys.adapters["alpha"])
    assert (found.path, found.origin) == (folder() / "bin" / "python", "stagebench env make alpha")
    assert (folder() / "built").read_text() == "alpha"
    row = listed(stagebench)
    assert (row["made"], row["python"], row["path"]) == ("yes", sys.version.split()[0], str(folder()))
    # An upgrade with other pins names what was made from the old ones.
    (alpha / "more.txt").write_text("numpy<2\n")
    assert listed(stagebench)["made"] == "of other pins"
    assert stagebench("env", "remove", "alpha").code == 0
    assert not folder().exists()
    assert isinstance(stagebench("env", "remove", "alpha").error, RequestError)


@pytest.mark.slow
def test_elsewhere_a_link_leads_there_and_what_is_made_here_again_replaces_both(alpha, stagebench, tmp_path):
    for _ in range(2):
        environments.make(environments.order("alpha", into=tmp_path / "large"))
    assert folder().is_symlink()
    assert listed(stagebench)["made"] == "yes"
    assert stagebench("env", "remove", "alpha").code == 0
    assert list((tmp_path / "large").iterdir()) == []
    environments.make(environments.order("alpha", into=tmp_path / "large"))
    again = environments.order("alpha", into=tmp_path / "home" / ".." / "home" / "stagebench" / "envs")
    assert again.place == folder(), "the usual folder by another name is no other"
    environments.make(again)
    assert not folder().is_symlink()
    assert list((tmp_path / "large").iterdir()) == []
    assert [each.name for each in folder().parent.iterdir() if each.is_dir()] == ["alpha"]


def test_what_somebody_keeps_in_these_folders_is_never_touched(alpha, stagebench, tmp_path):
    thesis, own = tmp_path / "mine" / "alpha" / "thesis.txt", folder().with_name("keep") / "file"
    for file in (thesis, own):
        file.parent.mkdir(parents=True)
        file.write_text("mine")
    with raising(RequestError, thesis.parent):
        environments.make(environments.order("alpha", into=tmp_path / "mine"))
    for name in ("..", ".", "keep", "../envs", ".alpha.lock"):
        assert isinstance(stagebench("env", "remove", name).error, RequestError)
    assert thesis.read_text() == own.read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(alpha, tmp_path):
    (tmp_path / "file").write_text("")
    with raising(RequestError, tmp_path / "file"):
        environments.make(environments.order("alpha", into=tmp_path / "file"))


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False])
def test_nothing_is_left_of_one_that_cannot_be_made_and_one_that_was_there_stays(alpha, stagebench, before):
    if before:
        environments.make(environments.order("alpha"))
    (alpha / "more.txt").write_text("no_such_package_at_all\n")
    assert stagebench("env", "make", "alpha").code == 1
    assert listed(stagebench)["made"] == ("of other pins" if before else "no")
    assert bool(environments.marker_of(folder())) == before
    assert [each.name for each in folder().parent.iterdir() if each.is_dir()] == ["alpha"] * before


@pytest.mark.slow
def test_an_interrupt_ends_the_compilers_that_an_installation_has_started(alpha, tmp_path):
    pid = tmp_path / "pid"
    (tmp_path / "build.py").write_text(
        "import subprocess, sys\n"
        "compiler = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(pid)!r}, 'w').write(str(compiler.pid))\n"
        "compiler.wait()\n"
    )

    def interrupt():
        wait_until(lambda: pid.exists() and pid.read_text())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        environments.make(environments.order("alpha"))
    assert not Path("/proc", pid.read_text()).exists()
    assert not folder().exists()


def test_one_that_was_interrupted_is_not_found(alpha, toys, stagebench):
    (folder() / "bin").mkdir(parents=True)
    (folder() / "bin" / "python").symlink_to(sys.executable)
    (folder() / "pyvenv.cfg").write_text("")
    assert listed(stagebench)["made"] == "unfinished"
    with pytest.raises(Unavailable):
        interpreters.find(toys.adapters["alpha"])


def test_a_whole_one_that_lacks_something_is_to_be_made_again(alpha, stagebench):
    (folder() / "bin").mkdir(parents=True)
    (folder() / "bin" / "python").symlink_to(sys.executable)
    marker = environments.Marker("1.0", "3.11.7", environments.pins(alpha / "alpha.txt"), gpu=False)
    (folder() / interpreters.MADE).write_text(json.dumps(marker._asdict()))
    made = stagebench("env", "make", "alpha")
    assert made.code == 1
    assert "no_such_framework" in made.out
    assert "`stagebench env make --again alpha`" in made.out
    assert "stagebench env make alpha`" not in made.out


def test_a_clone_s_tox_environment_comes_first(alpha, toys, tmp_path):
    (tmp_path / "tox" / "alpha" / "bin").mkdir(parents=True)
    (tmp_path / "tox" / "alpha" / "bin" / "python").symlink_to(sys.executable)
    folder().mkdir(parents=True)
    (folder() / interpreters.MADE).write_text("{}")
    origins = [candidate.origin for candidate in interpreters.candidates(toys.adapters["alpha"], {})]
    assert origins == ["tox environment alpha", "stagebench env make alpha", "the running interpreter"]


def test_the_build_for_gpus_is_a_file_of_its_own(alpha, stagebench):
    assert environments.order("alpha", gpu=True).environment.head.disk_mb == 40
    assert listed(stagebench)["download MB"] == 1
    head = (alpha / "alpha-gpu.txt").read_text()
    (alpha / "alpha-gpu.txt").write_text(head.replace("= 40", "= 40\n# estimated = true"))
    assert "estimated, not measured: the disk of alpha" in stagebench("env", "list", "--gpu").out
    assert "estimated" not in stagebench("env", "list").out
    folder().mkdir(parents=True)
    marker = environments.Marker("1.0", "3.11.7", environments.pins(alpha / "alpha-gpu.txt"), gpu=True)
    (folder() / interpreters.MADE).write_text(json.dumps(marker._asdict()))
    assert (listed(stagebench)["made"], listed(stagebench)["download MB"]) == ("for GPUs", 3)
    (alpha / "alpha-gpu.txt").unlink()
    with raising(RequestError, "alpha"):
        environments.order("alpha", gpu=True)


@pytest.mark.parametrize(
    "head",
    ["", HEAD.replace("20", '"twenty"'), HEAD.replace("3.11-3.14", "3.11 or newer"), HEAD.replace("disk_mb", "size")],
)
def test_a_damaged_head_is_named(alpha, head):
    (alpha / "alpha.txt").write_text(head + "numpy\n")
    with raising(RequestError, str(alpha / "alpha.txt")):
        environments.order("alpha")


def test_what_is_missing_is_refused_before_anything_is_made(alpha, monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "uv_program", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (alpha / "alpha.txt").write_text(HEAD.replace("3.11-3.14", "3.5") + "numpy\n")
    with raising(Unavailable, "3.5", "alpha"):
        environments.order("alpha")
    with raising(RequestError, "3.5", sys.executable):
        environments.order("alpha", python=sys.executable)
    (alpha / "alpha.txt").write_text(HEAD.replace("20", "999_999_999") + "numpy\n")
    with raising(Unavailable, "999,999,999"):
        environments.order("alpha")
    (alpha / "alpha.txt").write_text(HEAD[: -len("# ///\n")] + '# programs = { "c++" = "g++" }\n# ///\nnumpy\n')
    with raising(Unavailable, "c++", "g++"):
        environments.order("alpha")
    monkeypatch.delenv("PIP_FIND_LINKS")
    (alpha / "alpha.txt").write_text(HEAD + "torch==1.0\n")
    with raising(Unavailable, "alpha"):
        environments.order("alpha")


@pytest.fixture
def torch(alpha, monkeypatch, tmp_path):
    """The toy's requirements are PyTorch, a wheel of one line in a folder that no variable names yet."""
    if not environments.uv_program():
        pytest.skip("there is no uv")
    for names in environments.OF_PLACES.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    wheel(tmp_path / "wheels", "torch")
    (alpha / "alpha.txt").write_text(HEAD + "torch==1.0\n")
    return alpha


def test_uv_takes_pytorch_s_wheels_for_cpus_where_a_person_has_named_no_other(torch, monkeypatch):
    order = environments.order("alpha")
    assert (order.options, order.most_mb) == (("--torch-backend", "cpu"), (1, 20))
    monkeypatch.setenv("UV_TORCH_BACKEND", "cpu")
    assert environments.order("alpha") == order
    assert environments.order("alpha", gpu=True).options == ()


@pytest.mark.parametrize("name", ["UV_FIND_LINKS", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_TORCH_BACKEND"])
def test_a_named_place_may_have_pytorch_for_cuda_alone_and_there_has_to_be_room_for_it(torch, monkeypatch, name):
    room = int(environments.free(folder().parents[2]) / 1e6)
    fits = HEAD.replace("= 20", f"= {room - 2000}") + "torch==1.0\n"
    monkeypatch.setenv(name, "cu130")
    order = environments.order("alpha")
    assert (order.options, order.most_mb) == ((), (2601, 4120))
    assert "2,601 and 4,120 MB" in str(order)
    (torch / "alpha.txt").write_text(fits)
    with raising(Unavailable, f"{room + 2100:,}"):
        environments.order("alpha")
    monkeypatch.delenv(name)
    assert environments.order("alpha").options


def test_what_cuda_adds_is_as_the_files_for_gpus_have_it():
    usual, for_gpus = environments.declared(), environments.declared(gpu=True)
    both = [name for name in for_gpus if environments.of_torch(environments.pins(usual[name].file))]
    assert {"pytorch", "caffempi", "horovod-pytorch"} <= set(both)
    for name in both:
        head, other = usual[name].head, for_gpus[name].head
        added = (head.download_mb + environments.CUDA_MB[0], head.disk_mb + environments.CUDA_MB[1])
        assert added == pytest.approx((other.download_mb, other.disk_mb), rel=0.05), name


@pytest.mark.slow
def test_a_folder_of_wheels_is_enough_where_pytorch_s_index_cannot_be_reached(torch, monkeypatch, tmp_path):
    for name, value in {"UV_FIND_LINKS": tmp_path / "wheels", "UV_NO_INDEX": 1, "UV_HTTP_RETRIES": 0}.items():
        monkeypatch.setenv(name, str(value))
    environments.make(environments.order("alpha"))
    assert list(folder().glob("lib/*/site-packages/torch.py"))
    assert "torch" in environments.marker_of(folder()).pins[0]


def test_a_python_is_found_on_path_and_among_pyenv_s_and_conda_s(alpha, monkeypatch, tmp_path):
    version = f"3.{sys.version_info[1]}"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", str(tmp_path / "dead"))
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / f"python{version}").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "dead" / f"python{version}").chmod(0o755)  # as a version manager's stand-in
    places = [tmp_path / "pyenv" / "versions" / f"{version}.1" / "bin", tmp_path / "conda" / "bin"]
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"{tmp_path / 'conda'}\n")
    monkeypatch.setattr(environments.sys, "version_info", (3, 5))
    for place in reversed(places):
        place.mkdir(parents=True)
        (place / f"python{version}").symlink_to(sys.executable)
        assert environments.order("alpha").python == str(place / f"python{version}")


def test_uv_finds_what_pip_was_told(monkeypatch):
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", "/a /b")
    monkeypatch.setenv("PYTHONPATH", "/c")
    found = environments.variables()
    assert found["UV_FIND_LINKS"] == "/a,/b"
    assert "PYTHONPATH" not in found


def test_the_command_that_installs_into_this_python_is_here():
    subprocess.run(shlex.split(installing("--help")), check=True, capture_output=True)


@pytest.mark.parametrize("name", ["nosuch", "../alpha", "."])
def test_unknown_names_are_refused(alpha, stagebench, name):
    assert isinstance(stagebench("env", "make", name).error, RequestError)
    assert isinstance(stagebench("env", "remove", name).error, RequestError)


def test_quickstart_goes_on_to_the_pages_and_opens_nothing_in_a_pipe(monkeypatch, tmp_path):
    """Its parts are commands; an interrupted run has its pages, and the exit code of an interruption."""
    called = []

    def command(context, *words):
        called.append(words[0])
        if words[0] == "run":
            raise quickstart.Interrupted("stopped")
        return 0

    monkeypatch.setattr(quickstart, "_command", command)
    monkeypatch.setattr(quickstart, "_make", lambda names: called.append(tuple(names)))
    monkeypatch.setattr(quickstart, "_data", lambda context, cases: [])
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setitem(sys.modules, "webbrowser", None)
    with pytest.raises(quickstart.Interrupted):
        quickstart.quickstart(None, tmp_path / "run")
    assert called == [("pytorch", "jax", "caffempi"), "run", "report"]
