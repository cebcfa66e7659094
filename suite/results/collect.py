"""Joins run folders of different cases into one, so that cases from separate jobs of a cluster share a report."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from stagebench.suite.errors import RequestError
from stagebench.suite.files import disk, flush_folder, real, write_whole
from stagebench.suite.plan.networks import OF_A_NETWORK
from stagebench.suite.plan.text import Block, plan_text
from stagebench.suite.processes import bundle
from stagebench.suite.results.records import CaseEntry
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import SMALL, text_of

Folders = Mapping[RunFolder, Sequence[CaseEntry]]  # the run folders, each with its cases
# Folders that are copied unchanged; other files are read and written again, so that one folder has one format.
COPIED = ("attempts", "bundles", "networks")


def collect(runs: Sequence[Path], into: Path) -> int:
    """Copy the runs into a new run folder; return the number of records.

    RequestError, before anything is written, if the runs differ in stagebench's version, an adapter's code, the method,
    [sampling] or the network of a name, or if two of them hold one case.
    """
    if (into / "run.json").exists():
        raise RequestError(f"{into} is a run folder already; name a new one with -o")
    folders = {folder: folder.cases for folder in map(RunFolder.open, runs)}
    for folder, entries in folders.items():
        if not entries:
            raise RequestError(f"{folder.path} has no case; leave it out")
    check_alike(folders)
    check_apart(folders)
    every = [entry for entries in folders.values() for entry in entries]
    place = real(into)
    with disk(f"cannot write {into}", "free some space, or name an empty place with -o"):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as beside:
            joined = RunFolder(Path(beside) / "run")
            joined.make_folders()
            own = {name for folder in folders for name in folder.own_networks()}
            blocks = [Block(entry.case, "") for entry in every]
            plan = plan_text("collected", "", "The cases of several runs.", blocks, own)
            write_whole(joined.path / "plan.toml", plan)
            joined.write_cases(every)
            about = next(iter(folders)).about
            joined.write_about(about.but(id=uuid4().hex, collected=tuple(map(str, runs))))
            count = sum(copied(folder, joined) for folder in folders)
            os.sync()  # all copies, before the folder has its name
            joined.path.rename(place)  # whole or not at all
            flush_folder(place.parent)
    return count


def copied(folder: RunFolder, into: RunFolder) -> int:
    """Write a folder's hosts, proofs and records into another one, as that one's; return the number of records."""
    for name in (name for name in COPIED if (folder.path / name).is_dir()):
        shutil.copytree(folder.path / name, into.path / name, ignore=links, dirs_exist_ok=True)
    for host in folder.hosts().values():
        into.write_host(host)
    for proof in folder.proofs().values():
        into.write_proof(proof)
    count = 0
    for count, record in enumerate(folder.records(), 1):  # noqa: B007 - the number of records
        into.write_record(record)
    return count


def links(folder: str, names: list[str]) -> list[str]:
    """Return the names that are symbolic links: a run has none, and writing through one would leave the folder."""
    return [name for name in names if os.path.islink(os.path.join(folder, name))]


def check_alike(folders: Folders) -> None:
    """Raise RequestError if the folders were measured in different ways, or one has an invalid record."""
    first = next(iter(folders))
    about, rules = first.about, folders[first][0].case.sampling
    for folder, entries in folders.items():
        if folder.about.stagebench != about.stagebench:
            raise _unlike(first, folder, "were measured by different versions of stagebench")
        methods = {folder.about.method, *(record.method for record in folder.records())}
        if folder.invalid:
            problem = next(iter(folder.invalid.values()))
            raise RequestError(f"{folder.path}: {problem}; run that before it is collected")
        if methods != {about.method}:
            raise _unlike(first, folder, f"give figures of different methods ({about.method} and {max(methods)})")
        if any(entry.case.sampling != rules for entry in entries):
            raise _unlike(first, folder, "were measured by different rules ([sampling])")
    check_same(folders, "different code of the adapter", _codes)
    check_same(folders, "different networks of the name", _networks)


def check_same(folders: Iterable[RunFolder], what: str, of: Callable[[RunFolder], dict[str, Any]]) -> None:
    """Raise RequestError if two folders have different values under one name; `of` returns a folder's values."""
    found: dict[str, tuple[Any, RunFolder]] = {}
    for folder in folders:
        for name, own in of(folder).items():
            same, other = found.setdefault(name, (own, folder))
            if own != same:
                raise _unlike(other, folder, f"hold {what} {name!r}")


def _codes(folder: RunFolder) -> dict[str, Any]:
    return {code.name: bundle.written_digest(code) for code in sorted((folder.path / "bundles").glob("*/"))}


def _networks(folder: RunFolder) -> dict[str, Any]:
    place = folder.path / "networks"
    return {name: text_of(place / f"{name}.json", OF_A_NETWORK, SMALL) for name in sorted(folder.own_networks())}


def check_apart(folders: Folders) -> None:
    """Raise RequestError if two folders hold the same case: only the user can choose one."""
    found: dict[str, RunFolder] = {}
    for folder, entries in folders.items():
        for entry in entries:
            other = found.setdefault(entry.id, folder)
            if other is not folder:
                raise _unlike(other, folder, f"both hold the case {entry.case.label} ({entry.id})")


def _unlike(first: RunFolder, second: RunFolder, why: str) -> RequestError:
    return RequestError(f"{first.path} and {second.path} {why}; they cannot be one run: leave one of them out")
