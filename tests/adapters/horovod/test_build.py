"""The build that made this environment."""

import pytest
from engine import engine

from adapters.horovod import build
from tests.support.errors import raising


def test_what_stands_is_not_built_again(monkeypatch):
    monkeypatch.setattr(build, "pip", lambda *_: pytest.fail("pip was run"))
    assert build.stands(engine())
    assert build.main([engine()]) == 0


def test_another_engine_does_not_stand_here():
    (other, *_) = [name for name in build.MODULES if name != engine()]
    assert not build.stands(other)


def test_without_a_compiler_it_is_skipped(monkeypatch, tmp_path, capsys):
    (other, *_) = [name for name in build.MODULES if name != engine()]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.main([other]) == 0
    assert "there is no c++ and no make" in capsys.readouterr().err


def test_what_stands_is_shown(capsys):
    assert build.main(["--show", engine()]) == 0
    assert capsys.readouterr().out in (f"horovod {build.VERSION}\n", f"horovod {build.VERSION}, with NCCL\n")


def test_what_is_skipped_is_shown_and_is_no_failure(monkeypatch, tmp_path, capsys):
    (other, *_) = [name for name in build.MODULES if name != engine()]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.main(["--show", other]) == 0
    assert "Horovod is skipped: it is compiled, and there is no c++ and no make" in capsys.readouterr().err


def test_what_could_be_built_and_does_not_stand_is_a_failure(monkeypatch, tmp_path):
    (other, *_) = [name for name in build.MODULES if name != engine()]
    for tool in ("c++", "make"):
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "pip", lambda *_: pytest.fail("pip was run"))
    assert build.main(["--show", other]) == 1


@pytest.mark.parametrize("asked", [[], ["--show"], ["jax"], ["--show", "jax"], ["mxnet", "pytorch"]])
def test_an_engine_that_it_does_not_have_is_refused(asked, capsys):
    assert build.main(asked) == 2
    assert "mxnet, tensorflow, pytorch" in capsys.readouterr().err


def test_only_one_engine_is_asked_for():
    found = build.settings("pytorch")
    assert {name for name in found if name.startswith("HOROVOD_WITHOUT_")} == {
        "HOROVOD_WITHOUT_MXNET",
        "HOROVOD_WITHOUT_TENSORFLOW",
    }
    assert found["HOROVOD_WITH_PYTORCH"] == found["HOROVOD_WITH_MPI"] == found["HOROVOD_WITH_GLOO"] == "1"


def test_a_source_that_is_another_one_is_named(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text("set(CMAKE_CXX_STANDARD 14)\n")
    build.replace(tmp_path / "CMakeLists.txt", "STANDARD 14", "STANDARD 20")
    assert (tmp_path / "CMakeLists.txt").read_text() == "set(CMAKE_CXX_STANDARD 20)\n"
    with raising(ValueError, "CMakeLists.txt", "STANDARD 14", "0.28.1"):
        build.replace(tmp_path / "CMakeLists.txt", "STANDARD 14", "STANDARD 20")
