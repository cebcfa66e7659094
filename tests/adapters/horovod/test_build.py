"""The build that made this environment."""

import pytest
from engine import engine

from stagebench.adapters.horovod import build
from tests.support.errors import raising

OTHER = next(name for name in build.MODULES if name != engine())


def test_what_stands_is_shown_and_not_built_again(monkeypatch, capsys):
    monkeypatch.setattr(build, "pip", lambda *_: pytest.fail("pip was run"))
    assert build.stands(engine())
    assert build.main([engine()]) == 0
    assert build.main(["--show", engine()]) == 0
    assert capsys.readouterr().out in (f"horovod {build.VERSION}\n", f"horovod {build.VERSION}, with NCCL\n")


def test_another_engine_fails_unless_it_is_optional_and_there_is_no_compiler(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(build, "pip", lambda *_: pytest.fail("pip was run"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not build.stands(OTHER)
    for asked, code in (([OTHER], 1), (["--optional", OTHER], 0), (["--show", OTHER], 0)):
        assert build.main(asked) == code
        assert "Horovod is not built: it is compiled, and there is no c++ and no make" in capsys.readouterr().err
    for tool in ("c++", "make"):
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    assert build.main(["--show", OTHER]) == 1


def test_pytorch_s_part_needs_python_s_header(monkeypatch, tmp_path):
    monkeypatch.setattr(build.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert [build.absent(engine) for engine in ("mxnet", "pytorch")] == [[], [str(tmp_path / "Python.h")]]


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
