"""Joins run folders of different cases into one: what ran apart, in a cluster's jobs, is reported on together."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from suite.contracts.case import Case
from suite.errors import RequestError, StoreError
from suite.files import write_whole
from suite.launching import bundle
from suite.plan.text import Block, plan_text
from suite.results.run_folder import RunFolder

COPIED = ("records", "proofs", "hosts", "attempts", "bundles")


def collect(runs: Sequence[Path], into: Path) -> int:
    """Copy the runs into a new run folder; how many records there are.

    RequestError, before anything is written, when they were not made by the same
    stagebench and the same code of their adapters, hold the same case, or measured it by other rules.
    """
    if (into / "run.json").exists():
        raise RequestError(f"{into} is a run folder already; name a new one with -o")
    folders = [RunFolder.open(run) for run in runs]
    check_alike(folders)
    rows = [row for folder in folders for row in folder.cases]
    check_apart(folders)
    try:
        for folder in folders:
            for name in COPIED:
                shutil.copytree(folder.path / name, into / name, dirs_exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot copy into {into}: {error}; free some space, remove it, and try again") from error
    joined = RunFolder(into)
    blocks = [Block(Case.from_dict(row["case"]), "") for row in rows]
    write_whole(into / "plan.toml", plan_text("collected", "", "The cases of several runs.", blocks))
    joined.write("cases.json", {"scale": None, "cases": rows})
    joined.write("run.json", {**folders[0].about, "collected": [str(run) for run in runs]})  # last: now it is one
    return sum(1 for _ in joined.records())


def check_alike(folders: Sequence[RunFolder]) -> None:
    """RequestError when the folders were not measured in the same way."""
    first = folders[0]
    for folder in folders[1:]:
        if folder.about.get("stagebench") != first.about.get("stagebench"):
            raise _unlike(first, folder, "were measured by different versions of stagebench")
    codes: dict[str, tuple[str, RunFolder]] = {}
    rules = first.cases[0]["case"]["sampling"]
    for folder in folders:
        for code in sorted((folder.path / "bundles").glob("*/")):
            digest, other = codes.setdefault(code.name, (bundle.written_digest(code), folder))
            if digest != bundle.written_digest(code):
                raise _unlike(other, folder, f"hold different code of the adapter {code.name!r}")
        if any(row["case"]["sampling"] != rules for row in folder.cases):
            raise _unlike(first, folder, "were measured by different rules ([sampling])")


def check_apart(folders: Sequence[RunFolder]) -> None:
    """RequestError when two folders hold the same case: which one counts is not ours to say."""
    found: dict[str, RunFolder] = {}
    for folder in folders:
        for row in folder.cases:
            other = found.setdefault(row["id"], folder)
            if other is not folder:
                raise _unlike(other, folder, f"both hold the case {Case.from_dict(row['case']).label} ({row['id']})")


def _unlike(first: RunFolder, second: RunFolder, why: str) -> RequestError:
    return RequestError(f"{first.path} and {second.path} {why}; they cannot be one run: leave one of them out")
