"""Builds Horovod from its source for one engine, into the environment of the Python that runs this; tox.ini calls it.

There are no wheels: Horovod is compiled against the framework and the MPI that it is to use, which
stand in that environment; gloo is in the source. Takes about ten minutes of one core, nothing where
it stands already. Without a C++ compiler the environment stays as it is, and says so.
With `--show` before the engine nothing is built: it prints the version, or that Horovod is skipped.

Oldest Python: 3.6.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Dict, List

VERSION = "0.28.1"
MODULES = {"mxnet": "horovod.mxnet", "tensorflow": "horovod.tensorflow", "pytorch": "horovod.torch"}
# PyTorch's headers want a newer C++ than Horovod's last release asks for: file, what it says, what it is to say.
NEWER_CPP = {
    "pytorch": (
        ("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 20)"),
        ("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 20)"),
        ("third_party/gloo/CMakeLists.txt", "-std=c++11", "-std=c++20"),
    )
}
WORKS = "import horovod, {0} as hvd; raise SystemExit(not (horovod.__version__ == {1!r} and {2}))"
BOTH = "hvd.mpi_built() and hvd.gloo_built()"


def main(argv: List[str]) -> int:
    """Build for the engine named on the command line; 0 when it stands, or cannot be built here."""
    show = argv[:1] == ["--show"]
    argv = argv[show:]
    if len(argv) != 1 or argv[0] not in MODULES:
        sys.stderr.write("name the engine that Horovod is to run over: %s\n" % ", ".join(MODULES))
        return 2
    (engine,) = argv
    if stands(engine):
        if show:
            sys.stdout.write("horovod %s\n" % VERSION)
        return 0
    missing = [tool for tool in ("c++", "make") if shutil.which(tool) is None]
    if missing:
        sys.stderr.write(
            "Horovod is skipped: it is compiled, and there is no %s; install them (apt-get install g++ make) and run "
            "this again\n" % " and no ".join(missing)
        )
        return 0
    if show:
        return 0 if stands(engine, aloud=True) else 1
    with tempfile.TemporaryDirectory(prefix="horovod-") as scratch:
        source = unpacked(Path(scratch))
        for file, old, new in NEWER_CPP.get(engine, ()):
            replace(source / file, old, new)
        pip(["install", "--no-build-isolation", "--no-deps", "--no-cache-dir", str(source)], settings(engine))
    return 0 if stands(engine, aloud=True) else 1


def stands(engine: str, aloud: bool = False) -> bool:
    """Whether this Python imports it, with MPI and gloo; `horovodrun --check-build` asks less."""
    code = WORKS.format(MODULES[engine], VERSION, BOTH)
    errors = None if aloud else subprocess.DEVNULL
    return subprocess.call([sys.executable, "-W", "ignore", "-c", code], stderr=errors) == 0


def unpacked(folder: Path) -> Path:
    """The source as it was released, in a folder below this one."""
    options = ["--no-deps", "--no-build-isolation", "--no-binary", "horovod", "-d", str(folder)]
    pip(["download"] + options + ["horovod==" + VERSION], {"HOROVOD_SKIP_COMPILE": "1"})
    with tarfile.open(str(folder / ("horovod-%s.tar.gz" % VERSION))) as archive:
        archive.extractall(str(folder))
    return folder / ("horovod-%s" % VERSION)


def replace(file: Path, old: str, new: str) -> None:
    """Change a line of the source; ValueError where it does not stand there."""
    text = file.read_text()
    if old not in text:
        raise ValueError("%s does not say %r; is this Horovod %s?" % (file, old, VERSION))
    file.write_text(text.replace(old, new))


def settings(engine: str) -> Dict[str, str]:
    """What Horovod's setup.py reads: both controllers or an error, and no other framework that may be around."""
    found = {"HOROVOD_WITH_GLOO": "1", "HOROVOD_WITH_MPI": "1", "HOROVOD_WITH_" + engine.upper(): "1"}
    found.update(("HOROVOD_WITHOUT_" + other.upper(), "1") for other in MODULES if other != engine)
    found["MAKEFLAGS"] = os.environ.get("MAKEFLAGS", "-j%d" % len(os.sched_getaffinity(0)))
    return found


def pip(arguments: List[str], variables: Dict[str, str]) -> None:
    """Run this Python's pip, with CMake and mpicxx from beside it; CalledProcessError when it fails."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    environ = dict(os.environ, PATH=path, **variables)
    subprocess.check_call([sys.executable, "-m", "pip"] + arguments, env=environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
