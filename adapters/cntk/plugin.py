"""CNTK as the controller sees it: what it can do, and the libraries of 2016 that it wants."""

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from stagebench.adapters.open_mpi import GIVE_WAY, OPEN_MPI
from stagebench.suite.contracts.adapter import INFERENCE, Adapter, Backend, Capabilities, Format, Strategy
from stagebench.suite.contracts.case import Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.knobs import Knob
from stagebench.suite.files import DOCS, cache_folder, expanded
from stagebench.suite.processes.query import ask

INSIDE_UPDATE = ("io", "h2d", "forward", "backward", "update")  # these learners exchange within their update

STRATEGIES = (
    Strategy(
        "single",
        "stagebench.adapters.cntk.base:CNTKTrainer",
        "One process without MPI.",
        distributed=False,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "data_parallel",
        "stagebench.adapters.cntk.strategies.distributed:DataParallel",
        "32-bit gradients summed over MPI in every step.",
        mpi=OPEN_MPI,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "one_bit_sgd",
        "stagebench.adapters.cntk.strategies.distributed:OneBitSGD",
        "Gradients quantised to one bit, the error carried over to the next step (Seide 2014).",
        synchronous=False,
        separable=INSIDE_UPDATE,
        mpi=OPEN_MPI,
        changing_rate=True,
    ),
    Strategy(
        "block_momentum",
        "stagebench.adapters.cntk.strategies.distributed:BlockMomentum",
        "Every rank trains alone for a block of steps, then the models are joined (Chen and Huo 2016).",
        synchronous=False,
        separable=INSIDE_UPDATE,
        periodic=True,
        mpi=OPEN_MPI,
        changing_rate=True,
        refuses={
            ("optimiser", "adamw"): "its moments would outlive a block: CNTK resets only those of its own learners"
        },
    ),
    Strategy(
        INFERENCE,
        "stagebench.adapters.cntk.inference:CNTKPredictor",
        "No training: the logits, evaluated; tuned: batch normalisations folded, no checks of arguments.",
        infers=True,
        distributed=False,
    ),
)

KNOBS = {"block_steps": Knob(int, 10, "steps of a block", ("block_momentum",), least=1)}

FORMATS = (
    Format("cbf", "CNTK's binary format: what a network sees, as float32.", ("folder", "arrays"), whole=False),
    Format("ctf", "CNTK's text format: the same, a line a sample.", ("arrays",), whole=False),
    Format(
        "imagemap",
        "A list of the image files, read by CNTK's image reader where its old libraries are.",
        scaling="CNTK's image reader scales by OpenCV's INTER_LINEAR, four pixels for one however small the result",
    ),
)

# Without it CNTK's MKL takes its slowest path on AMD's processors; 5 is its path for AVX2: convolutions of ResNet-50
# and AlexNet take half to a third of the time. (The allocator's thresholds, which other frameworks want raised, change
# nothing: CNTK keeps its matrices, 7 page faults a step.)
AMD_TOO = {"MKL_DEBUG_CPU_TYPE": "5"}

# CNTK fills matrices with two threads, whatever number is set. In Intel's OpenMP the second of them then waits on its
# core for 200 ms, which is all the time: a step of gpt_char on one thread took 0.11 s of two cores.
ASLEEP = {"KMP_BLOCKTIME": "0"}

LIBRARIES_SETTING = "STAGEBENCH_CNTK_LIBRARIES"  # names the folder of the old libraries that its image reader needs

# name that CNTK looks for -> what Open MPI calls the same library since 3.0
LINKS = {"libmpi.so.12": "libmpi.so.40", "libmpi_cxx.so.1": "libmpi_cxx.so.40"}
USUAL = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64/openmpi/lib", "/usr/lib64", "/usr/local/lib", "/opt/openmpi/lib")
WHERE = "import importlib.util; print(importlib.util.find_spec('cntk').submodule_search_locations[0])"


BACKENDS = (
    Backend(
        "cntk-mpi",
        "CNTK's communicator: its 32-bit learner's sum over MPI.",
        "stagebench.adapters.cntk.comm:CNTKCommunicator",
        "data_parallel",
        ("all-reduce",),
    ),
)


class CNTK(Adapter):
    """The Microsoft Cognitive Toolkit 2.7, the last one, on CPUs."""

    contract = 4
    name = "cntk"
    title = "CNTK"
    package = "stagebench.adapters.cntk"
    requires = ("cntk", "PIL")  # Pillow tells what CNTK's image reader would decode otherwise than everybody else
    environment = "cntk"
    backends = BACKENDS
    requirements = "stagebench/adapters/environments/cntk.txt"
    # A line for the shell, its comment too. CNTK's wheels stop at CPython 3.6, which no distribution has any more.
    remedy = (
        "stagebench env make cntk  # with Python 3.6: pyenv install 3.6.15, after apt-get install git build-essential "
        "libssl-dev zlib1g-dev libbz2-dev libreadline-dev libsqlite3-dev libffi-dev liblzma-dev"
    )

    # CPUs: the wheel is CNTK's CPU one, and no CUDA of its time drives a GPU of today.
    capabilities = Capabilities(
        strategies=STRATEGIES,
        precisions=("float32", "float64"),
        knobs=KNOBS,
        optimisers=("sgd", "adam", "adamw"),
        formats=FORMATS,
        refuses={("device", "cuda"): "its wheel is the one without CUDA; cntk-gpu 2.7, for CUDA 10, was never tried"},
    )

    def missing(self, interpreter: Path) -> str | None:
        """Look for Open MPI's libraries, C++ included, which even a single process of CNTK loads."""
        if open_mpi() is not None:
            return None
        return (
            f"CNTK needs {' and '.join(LINKS.values())} of Open MPI 3 or 4, in one folder, and there is none in "
            f"LD_LIBRARY_PATH, ldconfig's list, beside mpiexec or in {', '.join(USUAL)}; install them: apt-get install "
            "openmpi-bin libopenmpi3 (Debian 12, Ubuntu 20.04 and 22.04; libopenmpi3t64 on Ubuntu 24.04); the Open MPI "
            "5 of Debian 13 has no C++ library any more: build Open MPI 4 with --enable-mpi-cxx there, and put its "
            "mpiexec on PATH or its lib folder on LD_LIBRARY_PATH"
        )

    def unreadable(self, form: Format) -> str | None:
        if form.name != "imagemap":
            return None
        missing = missing_image_libraries(":".join(named_folders()))
        return f"{missing}; {DOCS / 'cntk-libraries.md'} has the commands" if missing else None

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        """Return the loader's path to CNTK's libraries, how MPI and OpenMP wait, and a tuned process's MKL settings."""
        folders = [str(links()), f"{package(interpreter)}/libs", *named_folders()]
        found = {"LD_LIBRARY_PATH": ":".join(folders), **GIVE_WAY}
        if case.placement.threads == 1:
            found.update(ASLEEP)
        if case.tuning == "tuned" and amd_with_avx2():
            found.update(AMD_TOO)
        return found


@cache
def open_mpi() -> Path | None:
    """Return the folder that holds all of Open MPI's libraries that CNTK needs, or None."""
    listed = [Path(line.rpartition("=> ")[2]).parent for line in ldconfig() if line.split(" ")[0] in LINKS.values()]
    named = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    beside = shutil.which("mpiexec")
    near = [Path(beside).resolve().parent.parent / "lib"] if beside else []
    for folder in [*named, *near, *listed, *map(Path, USUAL)]:
        if all((folder / name).exists() for name in LINKS.values()):
            return folder
    return None


def ldconfig() -> list[str]:
    """The lines of the linker's list: "libmpi.so.40 (libc6,x86-64) => /usr/lib/..."; none when it cannot be asked."""
    for program in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            return [line.strip() for line in ask([program, "-p"], 10.0).stdout.splitlines()]
        except (OSError, subprocess.TimeoutExpired):
            continue
    return []


def links() -> Path:
    """Return a folder with Open MPI's libraries under the names that CNTK looks for; make or repair it if needed."""
    folder, source = cache_folder("cntk-libraries"), open_mpi()
    if source is None:
        return folder
    for name, target in LINKS.items():
        link = folder / name
        if not link.is_symlink() or link.readlink() != source / target:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:  # replaced whole: another run may be looking
                (Path(scratch) / name).symlink_to(source / target)
                (Path(scratch) / name).replace(link)
    return folder


def named_folders() -> list[str]:
    """Return the folders that the user names: in the loader's path, and for the image reader's libraries."""
    named = os.environ.get(LIBRARIES_SETTING, "")
    folders = [os.environ.get("LD_LIBRARY_PATH", ""), str(expanded(named).absolute()) if named else ""]
    return [folder for folder in folders if folder]


@cache
def missing_image_libraries(folders: str) -> str:
    """Return the remedy if the image reader lacks libraries, here and in `folders`; "" otherwise."""
    program = str(Path(__file__).with_name("libraries.py"))  # in a separate process, as the ranks' will be
    try:
        return ask(["env", f"LD_LIBRARY_PATH={folders}", sys.executable, program], 30.0).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""  # the worker asks again


@cache
def package(interpreter: Path) -> str:
    """The folder of the interpreter's cntk package; "" when it cannot be asked."""
    try:
        return ask([str(interpreter), "-c", WHERE], 30.0).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


@cache
def amd_with_avx2() -> bool:
    """Is this an AMD processor that can do what that setting tells MKL?"""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "AuthenticAMD" in text and " avx2 " in text


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [CNTK()]
