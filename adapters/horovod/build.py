"""Builds Horovod from its source for one engine, into the environment of the Python that runs this.

There are no wheels: Horovod is compiled against the framework and the MPI of that environment; gloo is in the source.
This takes about ten minutes of one core, and no time if Horovod is installed. Without a C++ compiler, make or Python's
header the environment is left as it is, with a message: that fails, but for `--optional` before the engine.
Over PyTorch it is built for GPUs, too, exchanging by NCCL, if there are a PyTorch with CUDA, an nvcc of the same major
version (CUDA_HOME's, the one on PATH, or wheels of this environment) and NCCL with its header (the wheel that such a
PyTorch brings, or CUDA's folder). If such a PyTorch lacks one of them, the message names it.
With `--show` before the engine nothing is built: it prints the version, or what a build lacks.

Oldest Python: 3.6.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

VERSION = "0.28.1"
MODULES = {"mxnet": "horovod.mxnet", "tensorflow": "horovod.tensorflow", "pytorch": "horovod.torch"}
# Horovod's last release is older than what it meets: file, what it says, what it is to say. PyTorch's headers want a
# newer C++, those of today's CUDA too; and a driver alone has no libcuda.so, which belongs to what is for developers.
CHANGED = {
    "pytorch": (
        ("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 20)"),
        ("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 20)"),
        ("third_party/gloo/CMakeLists.txt", "-std=c++11", "-std=c++20"),
        ("horovod/common/ops/cuda/CMakeLists.txt", "set(CMAKE_CUDA_STANDARD 11)", "set(CMAKE_CUDA_STANDARD 17)"),
        ("horovod/torch/cuda_util.cc", 'dlopen("libcuda.so", RTLD_LAZY)', 'dlopen("libcuda.so.1", RTLD_LAZY)'),
    )
}
WORKS = "import horovod, {0} as hvd; raise SystemExit(not (horovod.__version__ == {1!r} and {2}))"
LIBRARIES = ("lib", "lib64")
BOTH, NCCL = "hvd.mpi_built() and hvd.gloo_built()", "hvd.nccl_built()"
WITHOUT_NCCL = "Horovod is for CPUs alone, without NCCL: {}\n"
NO_NVCC = (
    "PyTorch is built for CUDA {0}, and there is no nvcc in the folder that CUDA_HOME names, on PATH, or in this "
    "environment; {1}"
)
# NVIDIA's wheels have the compiler since CUDA 13.
BRINGS_NVCC = "stagebench env make horovod-pytorch --gpu brings that of CUDA 13.0"
INSTALL_NVCC = "install CUDA {0}, and name its folder by CUDA_HOME"
ANOTHER_CUDA = "{0} is of CUDA {1}, PyTorch of {2}; name a folder of CUDA {2} by CUDA_HOME"
NO_NCCL = "there is no nccl.h with its library in {0}"


class Gpus(NamedTuple):
    """The parts of a build for GPUs: CUDA's folder, the folder of NCCL's header, NCCL's library."""

    toolkit: Path
    header: Path
    library: Path


def main(argv: List[str]) -> int:
    """Build for the engine named on the command line; 0 if it is installed then, or is optional and has no compiler."""
    show, optional = argv[:1] == ["--show"], argv[:1] == ["--optional"]
    argv = argv[show or optional :]
    if len(argv) != 1 or argv[0] not in MODULES:
        sys.stderr.write(f"name the engine that Horovod is to run over: {', '.join(MODULES)}\n")
        return 2
    (engine,) = argv
    over, why_not = gpus() if engine == "pytorch" else (None, "")
    if stands(engine, nccl=over is not None):
        if show:
            report(engine, why_not)
        return 0
    missing = absent(engine)
    if missing:
        sys.stderr.write(
            f"Horovod is not built: it is compiled, and there is no {' and no '.join(missing)}; install them "
            "(apt-get install g++ make python3-dev) and run this again\n"
        )
        return 0 if show or optional else 1
    if show:
        return 0 if stands(engine, nccl=over is not None, aloud=True) else 1
    if why_not:
        sys.stderr.write(WITHOUT_NCCL.format(why_not))
    install(engine, over)
    return 0 if stands(engine, nccl=over is not None, aloud=True) else 1


def absent(engine: str) -> List[str]:
    """Return the missing programs, and for PyTorch's part the missing header of Python."""
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    found = [tool for tool in ("c++", "make") if shutil.which(tool) is None]
    return found + [header] * (engine == "pytorch" and not os.path.exists(header))


def install(engine: str, over: Optional[Gpus]) -> None:
    """Compile it; CalledProcessError when that fails."""
    with tempfile.TemporaryDirectory(prefix="horovod-") as scratch:
        source = unpacked(Path(scratch))
        for file, old, new in CHANGED.get(engine, ()):
            replace(source / file, old, new)
        variables = settings(engine)
        if over:
            variables.update(settings_for_gpus(over, Path(scratch)))
        # An installed Horovod without NCCL has the same version.
        options = ["--force-reinstall", "--no-build-isolation", "--no-deps", "--no-cache-dir"]
        pip(["install"] + options + [str(source)], variables)


def report(engine: str, why_not: str) -> None:
    """Print the installed version, and NCCL or why a PyTorch for GPUs has none."""
    nccl = engine == "pytorch" and stands(engine, nccl=True)
    sys.stdout.write(f"horovod {VERSION}{', with NCCL' if nccl else ''}\n")
    if why_not and not nccl:
        sys.stderr.write(WITHOUT_NCCL.format(why_not))


def stands(engine: str, nccl: bool = False, aloud: bool = False) -> bool:
    """Check by an import, with MPI and gloo, and NCCL for GPUs; `horovodrun --check-build` checks less."""
    code = WORKS.format(MODULES[engine], VERSION, f"{BOTH} and {NCCL}" if nccl else BOTH)
    errors = None if aloud else subprocess.DEVNULL
    return subprocess.call([sys.executable, "-W", "ignore", "-c", code], stderr=errors) == 0


def unpacked(folder: Path) -> Path:
    """The source as it was released, in a folder below this one."""
    options = ["--no-deps", "--no-build-isolation", "--no-binary", "horovod", "-d", str(folder)]
    pip(["download"] + options + [f"horovod=={VERSION}"], {"HOROVOD_SKIP_COMPILE": "1"})
    with tarfile.open(str(folder / (f"horovod-{VERSION}.tar.gz"))) as archive:
        archive.extractall(str(folder))
    return folder / (f"horovod-{VERSION}")


def replace(file: Path, old: str, new: str) -> None:
    """Change a line of the source; ValueError if it is missing."""
    text = file.read_text()
    if old not in text:
        raise ValueError(f"{file} does not say {old!r}; is this Horovod {VERSION}?")
    file.write_text(text.replace(old, new))


def settings(engine: str) -> Dict[str, str]:
    """Return variables of Horovod's setup.py: require both controllers, ignore other frameworks."""
    found = {"HOROVOD_WITH_GLOO": "1", "HOROVOD_WITH_MPI": "1", f"HOROVOD_WITH_{engine.upper()}": "1"}
    found.update((f"HOROVOD_WITHOUT_{other.upper()}", "1") for other in MODULES if other != engine)
    found["MAKEFLAGS"] = os.environ.get("MAKEFLAGS", f"-j{len(os.sched_getaffinity(0))}")
    return found


def gpus() -> Tuple[Optional[Gpus], str]:
    """Return the parts for GPUs; None if PyTorch has no CUDA, or with the reason if a part is missing."""
    of_torch = cuda_of_torch()
    wheels = Path(sysconfig.get_paths()["platlib"]) / "nvidia"
    if not of_torch:
        return None, ""
    nvcc = compiler(wheels)
    if nvcc is None:
        remedy = BRINGS_NVCC if int(of_torch.split(".")[0]) >= 13 else INSTALL_NVCC
        return None, NO_NVCC.format(of_torch, remedy.format(of_torch))
    release = re.search(r"release (\d+\.\d+)", output_of(nvcc, "--version"))
    of_nvcc = release.group(1) if release else "an unknown version"
    if of_nvcc.split(".")[0] != of_torch.split(".")[0]:
        return None, ANOTHER_CUDA.format(nvcc, of_nvcc, of_torch)
    toolkit = folder_of(nvcc)
    # The wheel's first: PyTorch loads it, and a process must not load two.
    for folder in (wheels / "nccl", toolkit):
        libraries = [each for name in LIBRARIES for each in sorted((folder / name).glob("libnccl.so*"))]
        if (folder / "include" / "nccl.h").is_file() and libraries:
            return Gpus(toolkit, folder / "include", libraries[0]), ""
    return None, NO_NCCL.format(f"{wheels / 'nccl'} or {toolkit}")


def cuda_of_torch() -> str:
    """Return the version of CUDA that this environment's PyTorch is built for; "" without one."""
    code = "import torch; print(torch.version.cuda or '')"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return done.stdout.decode().strip()


def compiler(wheels: Path) -> Optional[Path]:
    """Return nvcc: CUDA_HOME's, the one on PATH, or one of NVIDIA's wheels, which share a folder."""
    named = os.environ.get("CUDA_HOME")
    on_path = shutil.which("nvcc")
    found = [Path(named) / "bin" / "nvcc"] if named else []
    found += [Path(on_path)] if on_path else []
    found += sorted(wheels.glob("cu*/bin/nvcc"))
    return next((nvcc for nvcc in found if nvcc.is_file()), None)


def folder_of(nvcc: Path) -> Path:
    """Return CUDA's folder, as the compiler reports it: nvcc on PATH may be a script that calls it."""
    top = re.search(r"^#\$ TOP=(.+)$", output_of(nvcc, "--dryrun", "-x", "cu", os.devnull), re.MULTILINE)
    return (Path(top.group(1).strip()) if top else nvcc.parent.parent).resolve()


def output_of(nvcc: Path, *arguments: str) -> str:
    """Return stdout and stderr, to which a dry run writes."""
    tokens = [str(nvcc)] + list(arguments)
    done = subprocess.run(tokens, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout.decode(errors="replace")


def settings_for_gpus(over: Gpus, scratch: Path) -> Dict[str, str]:
    """Return more variables of setup.py, and PyTorch's; CMake finds a wheel's library by a link."""
    links = scratch / "nccl"
    links.mkdir()
    (links / "libnccl.so").symlink_to(over.library)
    toolkit = over.toolkit if (over.toolkit / "lib64").is_dir() else whole(over.toolkit, scratch / "cuda")
    found = {"HOROVOD_GPU": "CUDA", "HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_WITHOUT_NVTX": "1"}
    found.update(CUDA_HOME=str(toolkit), HOROVOD_CUDA_HOME=str(toolkit), CUDACXX=str(toolkit / "bin" / "nvcc"))
    found.update(HOROVOD_NCCL_INCLUDE=str(over.header), HOROVOD_NCCL_LIB=str(links), HOROVOD_NCCL_LINK="SHARED")
    return found


def whole(wheels: Path, folder: Path) -> Path:
    """CUDA as its installer would lay it out: wheels have no lib64, and no library under the name that is linked."""
    shutil.copytree(str(wheels / "bin"), str(folder / "bin"))  # nvcc finds the other programs from its real folder
    for name in ("include", "nvvm"):
        (folder / name).symlink_to(wheels / name)
    (folder / "lib64").mkdir()
    for library in sorted((wheels / "lib").iterdir()):
        (folder / "lib64" / library.name).symlink_to(library)
        plain = folder / "lib64" / (f"{library.name.split('.so')[0]}.so")
        if ".so." in library.name and not plain.exists():
            plain.symlink_to(library)
    return folder


def pip(arguments: List[str], variables: Dict[str, str]) -> None:
    """Run this Python's pip, with its CMake and mpicxx, and CUDA's nvcc; CalledProcessError if it fails."""
    cuda = [os.path.join(variables["CUDA_HOME"], "bin")] if "CUDA_HOME" in variables else []
    path = os.pathsep.join([os.path.dirname(sys.executable)] + cuda + [os.environ.get("PATH", os.defpath)])
    environ = dict(os.environ, PATH=path, **variables)
    subprocess.check_call([sys.executable, "-m", "pip"] + arguments, env=environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
