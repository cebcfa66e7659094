"""What Horovod is built with, without building it: for GPUs only where all that this takes is there."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from stagebench.adapters.horovod import build

NVCC = """#!/bin/sh
case "$*" in
    --version) echo "Cuda compilation tools, release {release}, V{release}.88";;
    *) echo "#$ _HERE_={cuda}/bin" >&2; echo "#$ TOP={cuda}/bin/.." >&2;;
esac
"""


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without CUDA; a function lays what is named: an nvcc, and NCCL in "wheel" or "toolkit"."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"platlib": str(tmp_path / "site")})
    monkeypatch.setattr(subprocess, "call", lambda *_, **__: 0)
    homes = {"toolkit": (tmp_path / "cuda", "lib64/libnccl.so"), "wheel": (nccl_of(tmp_path), "lib/libnccl.so.2")}

    def lay(*names, cuda_of_torch="13.0"):
        if "nvcc" in names:
            put_nvcc(tmp_path / "cuda")
            monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
            (tmp_path / "cuda" / "lib64").mkdir()
        for name in set(names) & set(homes):
            folder, library = homes[name]
            touch(folder / "include" / "nccl.h"), touch(folder / library)
        monkeypatch.setattr(build, "cuda_of_torch", lambda: cuda_of_torch)
        return tmp_path

    return lay


def nccl_of(folder):
    return folder / "site" / "nvidia" / "nccl"


def put_nvcc(cuda, place=None, release="13.0"):
    """In CUDA's folder, or at a place from which it leads there."""
    nvcc = touch(place or cuda / "bin" / "nvcc")
    nvcc.write_text(NVCC.format(cuda=cuda, release=release))
    nvcc.chmod(0o755)
    return nvcc


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_over_a_pytorch_without_cuda_no_part_is_missed(machine, capsys):
    machine(cuda_of_torch="")
    assert build.gpus() == (None, "")
    assert build.main(["pytorch"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("names", "release", "said"),
    [
        ((), None, r"built for CUDA 13\.0, and there is no nvcc.*env make horovod-pytorch --gpu brings"),
        (("wheel",), None, "there is no nvcc"),
        (("wheel",), "12.4", r"bin/nvcc is of CUDA 12\.4, PyTorch of 13\.0; name a folder of CUDA 13\.0 by CUDA_HOME"),
        ((), "13.2", r"no nccl\.h with its library in .*site/nvidia/nccl or .*cuda"),
    ],
)
def test_where_a_part_is_missing_it_is_built_for_cpus_and_says_so(machine, monkeypatch, names, release, said, capsys):
    folder = machine(*names)
    if release:
        put_nvcc(folder / "cuda", folder / "bin" / "nvcc", release)
    over, why_not = build.gpus()
    assert over is None
    assert re.search(said, why_not)
    monkeypatch.setattr(build, "stands", lambda engine, nccl=False: not nccl)
    assert build.main(["--show", "pytorch"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"horovod {build.VERSION}\n"
    assert shown.err.startswith("Horovod is for CPUs alone, without NCCL: ")


def test_one_that_has_nccl_keeps_it_where_nvcc_is_gone(machine, capsys):
    machine()
    assert build.main(["--show", "pytorch"]) == 0
    assert capsys.readouterr() == (f"horovod {build.VERSION}, with NCCL\n", "")


def test_for_an_older_cuda_no_wheel_brings_nvcc(machine):
    machine(cuda_of_torch="12.8")
    _, why_not = build.gpus()
    assert re.search(r"CUDA 12\.8, .*; install CUDA 12\.8, and name its folder by CUDA_HOME$", why_not)


@pytest.mark.parametrize(
    ("torch", "cuda"),
    [("", ""), ("class version:\n    cuda = None", ""), ("class version:\n    cuda = '13.0'", "13.0")],
)
def test_cuda_s_version_is_pytorch_s(monkeypatch, tmp_path, torch, cuda):
    (tmp_path / "torch.py").write_text(torch or "raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert build.cuda_of_torch() == cuda


@pytest.mark.parametrize("places", [("wheel",), ("toolkit",), ("wheel", "toolkit")])
def test_with_all_parts_it_is_built_over_nccl(machine, places, tmp_path):
    folder = machine("nvcc", *places)
    (over, _), toolkit = build.gpus(), folder / "cuda"
    nccl = nccl_of(folder) if "wheel" in places else toolkit
    assert (over.toolkit, over.header) == (toolkit, nccl / "include")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = build.settings_for_gpus(over, scratch)
    assert (found["HOROVOD_GPU"], found["HOROVOD_GPU_OPERATIONS"]) == ("CUDA", "NCCL")
    assert found["CUDA_HOME"] == found["HOROVOD_CUDA_HOME"] == str(toolkit)
    assert found["HOROVOD_NCCL_INCLUDE"] == str(nccl / "include")
    # CMake looks for libnccl.so, which a wheel does not have.
    assert (Path(found["HOROVOD_NCCL_LIB"]) / "libnccl.so").resolve().parent in (nccl / "lib", nccl / "lib64")
    assert found["HOROVOD_NCCL_LINK"] == "SHARED"


def test_an_nvcc_on_path_may_be_a_script_that_leads_to_cuda(machine):
    folder = machine("wheel")
    put_nvcc(folder / "cuda", folder / "bin" / "nvcc")
    over, _ = build.gpus()
    assert over.toolkit == folder / "cuda"


def test_cuda_home_goes_before_the_path_and_the_path_before_wheels(machine, monkeypatch):
    folder, wheels = machine(), nccl_of(machine()).parent
    in_wheel = put_nvcc(wheels / "cu13")
    assert build.compiler(wheels) == in_wheel
    on_path = put_nvcc(folder / "cuda", folder / "bin" / "nvcc")
    assert build.compiler(wheels) == on_path
    named = put_nvcc(folder / "other")
    monkeypatch.setenv("CUDA_HOME", str(folder / "other"))
    assert build.compiler(wheels) == named


def test_cuda_s_wheels_are_laid_out_as_its_installer_does(machine, tmp_path):
    cu13 = nccl_of(machine("wheel")).parent / "cu13"
    put_nvcc(cu13)
    for name in ("include", "nvvm"):
        (cu13 / name).mkdir()
    touch(cu13 / "lib" / "libcudart.so.13"), touch(cu13 / "lib" / "libcudart_static.a")
    (tmp_path / "scratch").mkdir()
    over, _ = build.gpus()
    found, cuda = build.settings_for_gpus(over, tmp_path / "scratch"), tmp_path / "scratch" / "cuda"
    assert found["CUDA_HOME"] == found["HOROVOD_CUDA_HOME"] == str(cuda)
    assert not (cuda / "bin" / "nvcc").is_symlink(), "it looks for its parts from where it really is"
    assert (cuda / "lib64" / "libcudart.so").resolve() == cu13 / "lib" / "libcudart.so.13"
    assert {each.name for each in cuda.iterdir()} == {"bin", "include", "nvvm", "lib64"}


def test_what_stands_without_nccl_does_not_stand_for_gpus(machine, monkeypatch):
    asked = []
    monkeypatch.setattr(subprocess, "call", lambda tokens, **_: asked.append(tokens[-1]) or 0)
    assert build.stands("pytorch")
    assert build.stands("pytorch", nccl=True)
    assert ["nccl_built" in code for code in asked] == [False, True]


@pytest.mark.parametrize(("options", "code"), [([], 1), (["--optional"], 0), (["--show"], 0)])
def test_without_a_compiler_it_fails_unless_it_is_optional(monkeypatch, tmp_path, options, code, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.main([*options, "tensorflow"]) == code
    assert "no c++ and no make" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["mxnet", "tensorflow"])
def test_other_engines_are_not_looked_at(machine, monkeypatch, engine, capsys):
    machine("nvcc", "wheel")
    monkeypatch.setattr(build, "gpus", lambda: pytest.fail("they are built for CPUs"))
    assert build.main(["--show", engine]) == 0
    assert capsys.readouterr().out == f"horovod {build.VERSION}\n"


def test_what_stands_for_gpus_says_so(machine, capsys):
    machine("nvcc", "wheel")
    assert build.main(["--show", "pytorch"]) == 0
    assert capsys.readouterr().out == f"horovod {build.VERSION}, with NCCL\n"
