"""What Horovod is built with, without building it: for GPUs only where all that this takes is there."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

from adapters.horovod import build


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without CUDA; a function lays what is named: "nvcc" in a CUDA_HOME, NCCL in "wheel" or "toolkit"."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"platlib": str(tmp_path / "site")})
    monkeypatch.setattr(subprocess, "call", lambda tokens, **_: int("import torch" in tokens[-1]))
    homes = {"toolkit": (tmp_path / "cuda", "lib64/libnccl.so"), "wheel": (nccl_of(tmp_path), "lib/libnccl.so.2")}

    def lay(*names, torch_for_cuda=True):
        if "nvcc" in names:
            touch(tmp_path / "cuda" / "bin" / "nvcc").chmod(0o755)
            monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
        for name in set(names) & set(homes):
            folder, library = homes[name]
            touch(folder / "include" / "nccl.h"), touch(folder / library)
        monkeypatch.setattr(subprocess, "call", lambda *_, **__: int(not torch_for_cuda))
        return tmp_path

    return lay


def nccl_of(folder):
    return folder / "site" / "nvidia" / "nccl"


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    ("names", "torch_for_cuda"),
    [((), True), (("nvcc",), True), (("wheel",), True), (("toolkit",), True), (("nvcc", "wheel"), False)],
)
def test_where_a_part_is_missing_it_is_built_for_cpus(machine, names, torch_for_cuda):
    machine(*names, torch_for_cuda=torch_for_cuda)
    assert build.gpus() is None


@pytest.mark.parametrize("places", [("wheel",), ("toolkit",), ("wheel", "toolkit")])
def test_with_all_parts_it_is_built_over_nccl(machine, places, tmp_path):
    folder = machine("nvcc", *places)
    over, toolkit = build.gpus(), folder / "cuda"
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


def test_cuda_is_where_the_nvcc_on_path_is(machine):
    folder = machine("wheel")
    touch(folder / "bin" / "nvcc").chmod(0o755)
    assert build.gpus().toolkit == folder


def test_what_stands_without_nccl_does_not_stand_for_gpus(machine, monkeypatch):
    asked = []
    monkeypatch.setattr(subprocess, "call", lambda tokens, **_: asked.append(tokens[-1]) or 0)
    over = build.Gpus(Path("cuda"), Path("include"), Path("libnccl.so.2"))
    assert build.stands("pytorch")
    assert build.stands("pytorch", over)
    assert ["nccl_built" in code for code in asked] == [False, True]


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
