"""Frameworks' own environments: what can be made, what is made, making it with uv or with venv and pip.

A plugin names a file of pip requirements (`requirements`), which tox installs too. The file's head says in TOML, as a
script's does in PEP 723, which Pythons will do and how much is fetched:

    # /// environment
    # python = "3.11-3.13"
    # disk_mb = 1000
    # download_mb = 230
    # ///
    lumen==1.0
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from stagebench.suite import __version__
from stagebench.suite.errors import RequestError, StagebenchError, Unavailable
from stagebench.suite.files import expanded, free, locked, real, write_whole
from stagebench.suite.plugins import adapters, launchers, model_servers
from stagebench.suite.processes.interpreters import MADE, Probe, examine, made_folder
from stagebench.suite.processes.query import inherited
from stagebench.suite.text import chosen, installing
from stagebench.suite.worker.guard import guarded
from stagebench.suite.worker.typed_json import from_json

HEAD = re.compile(r"^# /// environment\n((?:#.*\n)+?)# ///$", re.MULTILINE)
# uv reads variables of its own; pip's, by which a person named mirrors and folders of wheels, hold for both.
OF_PIP = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_EXTRA_INDEX_URL"}
# Variables by which a person has decided where PyTorch's wheels come from.
OF_PLACES = {
    "uv": ("UV_TORCH_BACKEND", "UV_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"),
    "pip": ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
}
CUDA_MB = (2_600, 4_100)  # what PyTorch's build for CUDA adds to the one for CPUs: to download, on disk
OLD = 8  # uv installs for Python 3.8 and newer, and fetches these
FOREIGN = ("PYTHON", "VIRTUAL_ENV", "CONDA_")  # variables of the controller's own environment


class Head(NamedTuple):
    """The head of a file of requirements."""

    python: str  # "3.11-3.13" or "3.6"
    disk_mb: int  # of the environment, about; without CUDA's libraries
    download_mb: int
    estimated: bool = False  # the disk: it was not measured
    then: tuple[
        str, ...
    ] = ()  # a program, from the file's folder, and its arguments: the new Python runs it at the end
    programs: dict[str, str] = {}  # noqa: RUF012  # never changed.  programs that it needs: their packages


class Environment(NamedTuple):
    """An environment that can be made."""

    name: str
    file: Path
    head: Head

    @property
    def pythons(self) -> list[int]:
        """The minor versions of Python 3 that will do, the newest first."""
        first, _, last = self.head.python.replace("3.", "").partition("-")
        return list(range(int(last or first), int(first) - 1, -1))


def users(name: str = "") -> list[Any]:
    """Return the adapters, backends, model servers and launchers that have an environment that can be made, or this."""
    plugins: list[Any] = [*adapters().values(), *model_servers().values(), *launchers().values()]
    plugins += [backend for adapter in adapters().values() for backend in adapter.backends]
    return [each for each in plugins if each.environment and each.requirements and name in ("", each.environment)]


def declared(gpu: bool = False) -> dict[str, Environment]:
    """Return the environments that can be made, by name; with `gpu` those that have a build for GPUs, by that one."""
    files = {each.environment: located(each.requirements) for each in users()}
    if gpu:
        named = {name: file.with_name(f"{file.stem}-gpu.txt") for name, file in files.items()}
        files = {name: file for name, file in named.items() if file.exists()}
    return {name: Environment(name, file, head_of(file)) for name, file in sorted(files.items())}


def located(file: str) -> Path:
    """Return the path of a package's file, "adapters/lumen/requirements.txt"; RequestError if there is none."""
    package, _, rest = file.partition("/")
    spec = find_spec(package)
    # stagebench.py of a clone is a module: what a wheel has inside is next to it.
    folders = spec.submodule_search_locations or [os.path.dirname(spec.origin or "")] if spec else ()
    for path in (Path(folder) / rest for folder in folders):
        if path.is_file():
            return path
    raise RequestError(f"there is no file {file!r} of requirements; correct `requirements` in its plugin")


def head_of(file: Path) -> Head:
    """Read a file's head; RequestError if there is none, or a damaged one."""
    found = HEAD.search(file.read_text())
    try:
        text = re.sub("^# ?", "", found[1], flags=re.MULTILINE) if found else ""
        head: Head = from_json(Head, tomllib.loads(text), "its head")
        if not re.fullmatch(r"3\.\d+(-3\.\d+)?", head.python):
            raise ValueError(f"python = {head.python!r} should be such as '3.11-3.13'")
    except ValueError as error:
        raise RequestError(f"{file} does not begin as requirements of an environment do: {error}") from error
    return head


def pins(file: Path) -> list[str]:
    """Return a file's requirements, with those of the files that it names."""
    found = []
    for line in map(str.strip, file.read_text().splitlines()):
        if line.startswith("-r "):
            found += pins(file.parent / line[3:])
        elif line and not line.startswith("#"):
            found.append(line)
    return found


def of_torch(requirements: list[str]) -> bool:
    """True if the usual index has these for CUDA alone; wheels for CPUs come from other places."""
    return any(line.startswith("torch==") for line in requirements)


class Marker(NamedTuple):
    """A file in a whole environment."""

    stagebench: str
    python: str
    pins: list[str]
    gpu: bool


def marker_of(folder: Path) -> Marker | None:
    """Return the marker of an environment; None if it is not whole."""
    try:
        marker: Marker = from_json(Marker, json.loads((folder / MADE).read_text()), MADE)
        return marker
    except (OSError, ValueError):
        return None


def current(name: str, marker: Marker) -> bool | None:
    """Return whether an environment's build is that for GPUs; None if it was made from other pins than these."""
    environment = declared(marker.gpu).get(name)
    return marker.gpu if environment and pins(environment.file) == marker.pins else None


def size_mb(folder: Path) -> int:
    """Return an environment's size on disk."""
    sizes = (os.lstat(os.path.join(place, name)).st_blocks for place, _, files in os.walk(folder) for name in files)
    return round(sum(sizes) * 512 / 1e6)


class Order(NamedTuple):
    """All that is known before an environment is made."""

    environment: Environment
    folder: Path  # where stagebench looks for it
    place: Path  # where it is: `folder`, or one that a link there names
    python: str  # a path, or a version for uv to fetch
    uv: str | None
    options: tuple[str, ...]  # of the installer
    gpu: bool
    place_of_torch: str = ""  # a variable that names it: the build there may be the one for CUDA

    @property
    def most_mb(self) -> tuple[int, int]:
        """The megabytes that may have to be downloaded, and those on disk then."""
        head, (download, disk) = self.environment.head, CUDA_MB if self.place_of_torch else (0, 0)
        return head.download_mb + download, head.disk_mb + disk

    def __str__(self) -> str:
        """Return a line for people: what, by what, how much, and where."""
        head, tool = self.environment.head, "uv" if self.uv else "pip"
        size = f"about {head.download_mb:,} MB to download, {head.disk_mb:,} MB on disk"
        if self.place_of_torch:
            most = "up to {:,} and {:,} MB".format(*self.most_mb)
            size += f" ({most} if {self.place_of_torch} leads to the build for CUDA)"
        return f"{self.environment.name}: {tool}, Python {self.python}: {size}, in {self.place}"


def order(name: str, into: Path | None = None, gpu: bool = False, python: str | None = None) -> Order:
    """Check what can be checked before; RequestError or Unavailable say what is missing. `gpu`: the build for GPUs."""
    if gpu and name in declared() and name not in declared(gpu):
        raise RequestError(f"{name} has no build for GPUs; leave out --gpu")
    environment = declared(gpu)[chosen("environment", [name], declared(gpu))[0]]
    folder = made_folder() / name
    place = real(expanded(into)) / name if into else folder
    place = folder if place == real(folder.parent) / name else place
    missing = {program: package for program, package in environment.head.programs.items() if not shutil.which(program)}
    if missing:
        remedy = f"install them: apt-get install {' '.join(missing.values())}"
        raise Unavailable(f"{name} is compiled, and there is no {' and no '.join(missing)} on PATH", remedy)
    uv = uv_program() if environment.pythons[0] >= OLD else None
    found = python_for(environment, python, uv)
    options, place_of_torch = torch_of(environment, uv) if not gpu else ((), "")
    asked = Order(environment, folder, place, found, uv, options, gpu, place_of_torch)
    room, (_, most) = free(next(above for above in (place, *place.parents) if above.exists())) / 1e6, asked.most_mb
    if room < most:
        raise Unavailable(f"{asked}, where {room:,.0f} MB are free", "make room, or name another folder with --into")
    return asked


def torch_of(environment: Environment, uv: str | None) -> tuple[tuple[str, ...], str]:
    """Return the installer's options for PyTorch's CPU wheels, or the variable by which a person named their place.

    Then there are no options: uv would ask PyTorch's own index, and fail where it cannot be reached.
    """
    if not of_torch(pins(environment.file)):
        return (), ""
    given, cpu = variables(), ("--torch-backend", "cpu")
    named = next((name for name in OF_PLACES["uv" if uv else "pip"] if given.get(name)), "")
    if named:
        return (cpu, "") if uv and given.get("UV_TORCH_BACKEND") == "cpu" else ((), named)
    if uv:
        return cpu, ""
    raise Unavailable(
        f"{environment.name}: from its usual index pip would fetch the build for CUDA, gigabytes",
        f"install uv (`{installing('uv')}`), which knows where that for CPUs is, name it with PIP_FIND_LINKS "
        "or PIP_EXTRA_INDEX_URL, or take the build for GPUs with --gpu",
    )


def uv_program() -> str | None:
    """Return uv, next to this Python or on PATH, if it works: a version manager's shim may not."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which("uv", path=path)
    with contextlib.suppress(OSError):
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def python_for(environment: Environment, named: str | None, uv: str | None) -> str:
    """Return the Python to make an environment with: `named`, this one, or the newest that is found and will do."""
    wanted = [f"3.{minor}" for minor in environment.pythons]

    def will_do(path: Path, versions: list[str]) -> bool:
        answer = examine(path, ()) if os.access(path, os.X_OK) else ""
        return isinstance(answer, Probe) and answer.version.rpartition(".")[0] in versions

    if named:
        path = Path(shutil.which(named) or expanded(named)).absolute()
        if not will_do(path, wanted):
            why = f"{environment.name} has wheels for Python {environment.head.python} alone, not for {named}"
            raise RequestError(why, "name another, or leave --python out")
        return str(path)
    if sys.version_info[1] in environment.pythons:
        return sys.executable
    for version in wanted:
        found = next((path for path in places_of(version) if will_do(path, [version])), None)
        if found:
            return str(found)
    if uv:
        return wanted[0]
    raise Unavailable(
        f"{environment.name} has wheels for Python {environment.head.python} alone, which was not found here",
        f"install it (`pyenv install {wanted[0]}`, or `conda create -n py{wanted[0]} python={wanted[0]}`), or name it "
        "with --python",
    )


def places_of(version: str) -> Iterator[Path]:
    """Yield the paths at which a Python may be: on PATH, pyenv's, conda's."""
    yield from (Path(folder, f"python{version}") for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
    pyenv = Path(os.environ.get("PYENV_ROOT") or expanded("~/.pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}*/bin/python{version}"), reverse=True)
    with contextlib.suppress(OSError):
        folders = expanded("~/.conda/environments.txt").read_text().splitlines()
        yield from (Path(folder, "bin", f"python{version}") for folder in folders)


def variables() -> dict[str, str]:
    """Return the installer's variables."""
    found = inherited(FOREIGN)
    for name, value in found.copy().items():
        found.setdefault(OF_PIP.get(name, name), value)
    if "PIP_FIND_LINKS" in found:  # pip wants spaces between folders, uv commas
        found.setdefault("UV_FIND_LINKS", ",".join(found["PIP_FIND_LINKS"].split()))
    return found


def make(asked: Order) -> None:
    """Make an environment; where that fails, one that was there before stays, and nothing else is left."""
    folder, place = asked.folder, asked.place
    _prepare(folder, place)
    with _alone(folder):
        before = real(folder) if marker_of(folder) else None
        with _replaced(place, whole=before == real(place)):
            requirements = pins(asked.environment.file)
            _install(asked, requirements)
            version = str(getattr(examine(place / "bin" / "python", ()), "version", ""))
            marker = Marker(__version__, version, requirements, asked.gpu)
            write_whole(place / MADE, json.dumps(marker._asdict(), indent=1))
        if place != folder:
            if before != real(place):
                remove(folder)
            folder.unlink(missing_ok=True)
            folder.symlink_to(place)


def _prepare(folder: Path, place: Path) -> None:
    """Make the folders that hold them; RequestError for what is there and was not made by stagebench."""
    for there in {folder, place}:
        ours = (there / MADE).is_file() or (there == folder and (there / "pyvenv.cfg").is_file())
        if (there.is_symlink() and there != folder) or (there.exists() and not ours and not _is_empty(there)):
            raise RequestError(f"{there} is no environment of stagebench", "move it away, or name another folder")
    for parent in {folder.parent, place.parent}:
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"environments cannot be in {parent}: {error.strerror or error}"
            raise RequestError(why, "name a folder with --into, or by XDG_DATA_HOME") from error


@contextlib.contextmanager
def _replaced(place: Path, whole: bool) -> Iterator[None]:
    """Keep a whole environment aside until another one is in its place, or put it back."""
    aside = place.with_name(f".{place.name}.before")
    remove(aside)
    if whole:
        place.rename(aside)
    else:
        remove(place)
    try:
        yield
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        if whole:
            aside.rename(place)
        raise
    remove(aside)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold an environment's lock; RequestError if another process has it."""

    def refuse(holder: str) -> None:
        raise RequestError(f"{folder.name} is being made by another process ({holder}); wait for it, or end it")

    with locked(folder.parent / f".{folder.name}.lock", refuse):
        yield


def _install(asked: Order, requirements: list[str]) -> None:
    python, head = asked.place / "bin" / "python", asked.environment.head
    if asked.uv:
        # Without byte code a large framework takes seconds longer to import at every start.
        into = ["--python", str(python), "--compile-bytecode", *asked.options]
        steps = [
            [asked.uv, "venv", "--quiet", "--python", asked.python, str(asked.place)],
            [asked.uv, "pip", "install", *into, *requirements],
        ]
    else:
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
        steps = [[asked.python, "-m", "venv", str(asked.place)], [*pip, "--quiet", "--upgrade", "pip"]]
        steps += [[*pip, *requirements]]
    if head.then:
        program, *arguments = head.then
        steps += [[str(python), str(asked.environment.file.parent / program), *arguments]]
    for step in steps:
        running = subprocess.Popen(guarded(step, patience=2.0, left=0.0), env=variables())
        try:
            code = running.wait()
        finally:
            running.terminate()  # after Ctrl-C the guard ends pip, and every compiler that it has started
            running.wait()
        if code != 0:
            words = " ".join(step[:4])
            raise StagebenchError(
                f"{asked.environment.name} could not be made: `{words} ...` ended with exit code {code}",
                "its last lines, above, say why; nothing is left of it",
            )


def is_environment(folder: Path) -> bool:
    """Return whether a folder, or the one that a link names, is an environment that was made here."""
    return folder.is_symlink() or (folder / MADE).is_file() or (folder / "pyvenv.cfg").is_file()


def remove(folder: Path) -> None:
    """Remove an environment, if there is one, and the folder that a link names."""
    if folder.is_symlink():
        if marker_of(folder):
            shutil.rmtree(folder.resolve())
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def remove_made(name: str) -> int:
    """Remove an environment; return the megabytes it had. RequestError if there is none of this name."""
    folder = made_folder() / name
    if name.startswith(".") or Path(name).name != name or not is_environment(folder):
        remedy = "`stagebench env list` lists those that there are"
        raise RequestError(f"there is no environment {name!r} in {folder.parent}", remedy)
    with _alone(folder):
        size = size_mb(folder.resolve())
        remove(folder)
    return size
