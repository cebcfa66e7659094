"""The build that made this environment."""

import pytest
from engine import engine

from adapters.horovod import build


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
    with pytest.raises(ValueError, match=r"CMakeLists.txt does not say 'STANDARD 14'; is this Horovod 0\.28\.1"):
        build.replace(tmp_path / "CMakeLists.txt", "STANDARD 14", "STANDARD 20")


NVCC = """#!/bin/sh
case "$*" in
    --version) echo "Cuda compilation tools, release {release}, V{release}.88";;
    *) echo "#$ _HERE_={folder}/bin" >&2; echo "#$ TOP={folder}/bin/.." >&2;;
esac
"""


@pytest.fixture
def site(monkeypatch, tmp_path):
    """An environment's packages, of a PyTorch for CUDA 13.0 with its NCCL; no CUDA besides."""
    nccl = tmp_path / "site" / "nvidia" / "nccl"
    for name in ("include", "lib"):
        (nccl / name).mkdir(parents=True)
    (nccl / "include" / "nccl.h").touch()
    (nccl / "lib" / "libnccl.so.2").touch()
    monkeypatch.setattr(build.sysconfig, "get_paths", lambda: {"platlib": str(tmp_path / "site")})
    monkeypatch.setattr(build, "cuda_of_torch", lambda: "13.0")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "site"


def put_nvcc(place, folder, release="13.0"):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(NVCC.format(folder=folder, release=release))
    place.chmod(0o755)
    return place


def test_a_script_on_the_path_leads_to_cudas_own_folder(site, tmp_path):
    put_nvcc(tmp_path / "bin" / "nvcc", tmp_path / "cuda")
    assert build.gpus() == (
        tmp_path / "cuda",
        site / "nvidia" / "nccl" / "include",
        site / "nvidia" / "nccl" / "lib" / "libnccl.so.2",
    )


def test_cuda_home_goes_before_the_path_and_the_path_before_wheels(site, monkeypatch, tmp_path):
    wheel = put_nvcc(site / "nvidia" / "cu13" / "bin" / "nvcc", site / "nvidia" / "cu13")
    assert build.compiler(site / "nvidia") == wheel
    on_path = put_nvcc(tmp_path / "bin" / "nvcc", tmp_path / "cuda")
    assert build.compiler(site / "nvidia") == on_path
    named = put_nvcc(tmp_path / "other" / "bin" / "nvcc", tmp_path / "other")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "other"))
    assert build.compiler(site / "nvidia") == named


def test_cudas_wheels_are_laid_out_as_cmake_knows_cuda(site, tmp_path):
    wheels = site / "nvidia" / "cu13"
    put_nvcc(wheels / "bin" / "nvcc", wheels)
    for name in ("include", "nvvm", "lib"):
        (wheels / name).mkdir()
    (wheels / "lib" / "libcudart.so.13").touch()
    (wheels / "lib" / "libcudart_static.a").touch()
    (tmp_path / "scratch").mkdir()
    found = build.settings_for_gpus(build.gpus(), tmp_path / "scratch")
    cuda = tmp_path / "scratch" / "cuda"
    assert found["CUDA_HOME"] == found["HOROVOD_CUDA_HOME"] == str(cuda)
    assert not (cuda / "bin" / "nvcc").is_symlink()
    assert (cuda / "lib64" / "libcudart.so").resolve() == (cuda / "lib64" / "libcudart.so.13").resolve()
    assert {each.name for each in cuda.iterdir()} == {"bin", "include", "nvvm", "lib64"}


@pytest.mark.parametrize(
    ("release", "nccl", "said"),
    [
        (None, True, r"built for CUDA 13\.0, and there is no nvcc.*deps\+=cuda-toolkit\[cccl,nvcc\]' brings it"),
        ("12.4", True, r"bin/nvcc is of CUDA 12\.4, PyTorch of 13\.0; name a folder of CUDA 13\.0 by CUDA_HOME"),
        ("13.2", False, r"no nccl\.h with its library in .*nvidia/nccl or .*cuda"),
    ],
)
def test_what_a_build_for_gpus_lacks_is_said(release, nccl, said, site, monkeypatch, tmp_path, capsys):
    if release:
        put_nvcc(tmp_path / "bin" / "nvcc", tmp_path / "cuda", release)
    if not nccl:
        (site / "nvidia" / "nccl" / "include" / "nccl.h").unlink()
    with pytest.raises(build.Lacking, match=said):
        build.gpus()
    monkeypatch.setattr(build, "stands", lambda *_, **__: True)
    assert build.main(["pytorch"]) == 0
    assert "Horovod is built for CPUs alone, without NCCL: " in capsys.readouterr().err


def test_a_pytorch_without_cuda_asks_for_no_compiler(site, monkeypatch):
    monkeypatch.setattr(build, "cuda_of_torch", lambda: "")
    assert build.gpus() is None
