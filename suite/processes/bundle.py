"""The bundle: exactly the code that runs in a framework's interpreter, stored with the results.

    BUNDLE/
      bundle.json      the adapter, and the digest of every file
      __main__.py      so that `python BUNDLE JOB` starts the worker
      stagebench.py    so that `stagebench.suite` is the folder next to it
      suite/worker/    the worker half
      workloads/
      adapters/NAME/   the adapter's package, without its plugin.py, and those that it builds on

Nothing is installed into the framework's environment.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from stagebench.suite import __version__
from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.launcher import LIMITED
from stagebench.suite.contracts.model_server import ModelServer
from stagebench.suite.errors import RequestError
from stagebench.suite.files import ROOM, disk
from stagebench.suite.worker.variables import THREADS

FORMAT = 1
HOME = Path(__file__).parents[2]  # the folder of stagebench's packages
ROOT_MODULE = Path(str(sys.modules["stagebench"].__file__))


def digest(adapter: Adapter) -> str:
    """Return the digest of the bundle that would be written for an adapter: twelve hexadecimal digits."""
    return combined(digests(sources(adapter)))


def written_digest(folder: Path) -> str:
    """Return the digest of a bundle's files in a folder: of the code that runs, even if its sources have changed.

    StoreError when it cannot be read.
    """
    return combined(written_digests(folder))


def write(adapter: Adapter | ModelServer, folder: Path) -> Path:
    """Write the adapter's bundle to `folder`, whole or not at all; returns its absolute path.

    A bundle that exists is kept if it is the same; RequestError if it is not, because records made with other code must
    not be mixed with new ones.
    """
    found = sources(adapter)
    now = digests(found)
    if folder.exists():
        # Python would run byte code in place of the code that is compared.
        with disk(f"cannot remove the byte code in {folder}", "remove every __pycache__ there"):
            for cache in list(folder.rglob("__pycache__")):
                cache.unlink() if cache.is_symlink() or not cache.is_dir() else shutil.rmtree(cache)
        check_same(adapter, folder, now)
        return folder.absolute()
    with disk(f"cannot write the bundle {folder}", "free some space or name another folder with -o"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
            whole = Path(scratch) / "bundle"
            for name, source in found.items():
                (whole / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, whole / name)
            about = {"format": FORMAT, "adapter": adapter.name, "package": adapter.package, "digest": combined(now)}
            (whole / "bundle.json").write_text(json.dumps({**about, "files": now}, indent=1) + "\n")
            whole.rename(folder)
    return folder.absolute()


def command(interpreter: Path, bundle: Path, job: Path, threads: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the worker's tokens, and the variables that every rank must see.

    A folder with a __main__.py is run as a program: its code comes first on Python's path, on 3.6 as on 3.13, in any
    working directory, and no variable has to reach it. The user's own site-packages stay: the environment was examined
    with them.
    """
    tokens = (str(interpreter), "-B", "-u", str(bundle.absolute()), str(job.absolute()))
    return tokens, dict.fromkeys(THREADS, str(threads))


def script(interpreter: Path, bundle: Path, tokens: tuple[str, ...], memory_limit: int = 0) -> tuple[str, ...]:
    """Return the tokens that run a file of the bundle, named first, with its arguments.

    `memory_limit`: bytes that it may allocate; 0: no limit.
    """
    bundle = bundle.absolute()
    limited = (str(bundle / LIMITED), str(memory_limit)) if memory_limit else ()
    return (str(interpreter), "-B", "-u", *limited, str(bundle / tokens[0]), *tokens[1:])


def sources(adapter: Adapter | ModelServer) -> dict[str, Path]:
    """Every file of the bundle: its name there, and where it comes from."""
    found = {"__main__.py": HOME / "suite/worker/__main__.py", "stagebench.py": ROOT_MODULE}
    found["suite/__init__.py"] = HOME / "suite/__init__.py"
    for name in ("suite/worker", "workloads"):
        found.update(below(name, HOME / name))
    found.update(own_sources(adapter))
    return dict(sorted(found.items()))


def own_sources(adapter: Adapter | ModelServer) -> Iterator[tuple[str, Path]]:
    """Yield the files of the adapter's package, of those that it builds on, and the __init__ files above them.

    The worker is not imported.
    """
    for package in (adapter.package, *adapter.builds_on):
        top = "stagebench." if package.startswith("stagebench.") else ""  # its folders are next to stagebench.py
        names = package.removeprefix(top).split(".")
        for depth in range(1, len(names)):
            init = located(adapter, top + ".".join(names[:depth])) / "__init__.py"
            if init.is_file():  # a namespace package has none
                yield "/".join((*names[:depth], "__init__.py")), init
        path, place = "/".join(names), located(adapter, package)
        yield from [(f"{path}.py", place)] if place.is_file() else below(path, place)


def located(adapter: Adapter | ModelServer, name: str) -> Path:
    """A package's folder or a module's file; RequestError when neither is on disk."""
    spec = find_spec(name)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    place = Path(folders[0] if folders else (spec.origin or "") if spec else "")
    if spec is None or not (place.is_dir() if folders else place.is_file()):
        raise RequestError(
            f"the adapter {adapter.name!r} names the package {name!r}, which is not on this machine; "
            "correct `package` or `builds_on` in its plugin.py, or install the package unzipped"
        )
    return place


def below(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of a package, without what Python compiled and without the controller's side."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        for file in sorted(files):
            if file != "plugin.py" and not file.endswith((".pyc", ".pyo")):
                path = Path(root) / file
                yield f"{name}/{path.relative_to(folder).as_posix()}", path


def digests(found: dict[str, Path]) -> dict[str, str]:
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}


def written_digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a bundle but bundle.json; StoreError if one cannot be read."""
    with disk(f"cannot read the bundle {folder}", ROOM):
        paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return digests({path.relative_to(folder).as_posix(): path for path in paths if path != folder / "bundle.json"})


def combined(files: dict[str, str]) -> str:
    """Return one digest over names and digests."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:12]


def check_same(adapter: Adapter | ModelServer, folder: Path, now: dict[str, str]) -> None:
    """RequestError if the files in the folder are not those that would be written now."""
    there = written_digests(folder)
    changed = sorted(name for name in {*there, *now} if there.get(name) != now.get(name))
    if changed:
        about, written = folder / "bundle.json", None
        if about.is_file():  # reading from a pipe would never end
            with suppress(OSError, ValueError, KeyError, TypeError):
                written = json.loads(about.read_text())["digest"]
        if written == combined(now):
            raise RequestError(f"the bundle {folder} is damaged: {changed[0]} differs; remove it: it is written again")
        if "suite/__init__.py" in changed:  # it holds the version
            raise RequestError(
                f"another stagebench than {__version__} began the run of {folder} (run.json names it); "
                "go on with that version, or name a new folder with -o"
            )
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        raise RequestError(
            f"the code of the adapter {adapter.name!r} is not what the run began with: {shown} differ from {folder}; "
            "name another run folder with -o, or go back to that code"
        )
