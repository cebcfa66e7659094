"""The run folder: what was asked, where it ran, and one file per record, written whole or not at all.

    RUN/
      run.json                 format, version, when, the command line
      plan.toml                the plan as given, with what --set has changed
      networks/NAME.json       the graphs of networks that the plan names by their files
      cases.json               the plan as resolved: its scale, every case with its id, or why it cannot run
      hosts/NAME.json          fingerprint of each host
      bundles/ADAPTER/         exactly the code that ran in the framework's interpreter
      records/ID-rN.json       case ID, repeat N
      proofs/KEY.json          the proofs that records name
      .lock                    held by the process that measures; see suite.results.lock
      attempts/ID-rN/          job, rank messages and logs: the evidence behind a record

History of the format: 1 (the first).
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suite.errors import RequestError, StoreError
from suite.files import write_whole
from suite.plan.read import differences

FORMAT = 1
CANCELLED = "cancelled"  # the outcome of what a person stopped: measured when the run goes on


class RunFolder:
    """One run's results on disk."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist yet."""
        self.path = path

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run; RequestError when it is none, or is of a format this version cannot read."""
        marker = path / "run.json"
        if not marker.is_file():
            raise RequestError(f"{path} is not a run folder (no run.json); name a folder written by `stagebench run`")
        found = _read(marker).get("format")
        if found != FORMAT:
            raise RequestError(
                f"{marker} has format {found!r}, this stagebench reads {FORMAT}; "
                "read it with the version that wrote it (its run.json says which)"
            )
        return cls(path)

    def create(self, about: dict[str, Any]) -> None:
        """Make the folders and write run.json, unless this run has records already (a resume).

        RequestError when no run folder can stand there.
        """
        with usable(self.path):
            if (self.path / "run.json").exists():
                RunFolder.open(self.path)
            for name in ("records", "proofs", "attempts", "bundles", "hosts"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
        if not self.begun:
            self.write("run.json", {**about, "format": FORMAT})

    @property
    def begun(self) -> bool:
        """Whether anything was measured: until then a run may still become another one."""
        return any(self._record_files())

    def adopt_plan(self, text: str, scale: str | None = None) -> None:
        """Keep the plan as given; RequestError when this run has records of another one, or of another scale of it."""
        path = self.path / "plan.toml"
        same = path.exists() and path.read_text() == text
        if path.exists() and self.begun:
            if not same:
                told = differences(path.read_text(), text)
                more = f", and {len(told) - 3} more" if len(told) > 3 else ""
                raise RequestError(
                    f"{self.path} was begun with another plan ({path}): {', '.join(told[:3]) or 'another text'}{more}; "
                    "go on with that one, or name a new folder with -o"
                )
            if self.scale != scale:
                began = f"with --scale {self.scale}" if self.scale else "without --scale"
                raise RequestError(f"{self.path} was begun {began}; go on so, or name a new folder with -o")
        if not same:
            write_whole(path, text)

    def keep_network(self, name: str, graph: dict[str, Any]) -> None:
        """Keep a network that the plan names by its file: the file may change, and the plan is to mean the same."""
        with usable(self.path):
            (self.path / "networks").mkdir(exist_ok=True)
        self.write(f"networks/{name}.json", graph)

    @property
    def about(self) -> dict[str, Any]:
        """run.json."""
        return _read(self.path / "run.json")

    @property
    def scale(self) -> str | None:
        """The scale of the plan that was resolved; None: the plan itself."""
        return _read(self.path / "cases.json").get("scale")

    @property
    def cases(self) -> list[dict[str, Any]]:
        """cases.json: {"id", "case", "outcome": null | "unsupported" | "unavailable", "reason"} each."""
        found: list[dict[str, Any]] = _read(self.path / "cases.json")["cases"]
        return found

    def attempt(self, case_id: str, repeat: int | str) -> Path:
        """The folder of an attempt, made when needed; StoreError when the disk refuses."""
        folder = self.path / "attempts" / f"{case_id}-r{repeat}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot make {folder}: {error.strerror or error}; what was measured before is kept. "
                "Free some space or name another folder with -o, then run the same command again to resume"
            ) from error
        return folder

    def record(self, case_id: str, repeat: int) -> dict[str, Any] | None:
        """A record, or None when it has not been measured."""
        path = self.path / "records" / f"{case_id}-r{repeat}.json"
        return _read(path) if path.exists() else None

    def records(self, of: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
        """Every record (of these case ids, when given), in file name order, one at a time."""
        for path in self._record_files():
            if of is None or _case_id(path) in of:
                yield _read(path)

    def strays(self) -> list[str]:
        """Names of the record files that belong to no case of cases.json, such as those of an older resolution."""
        known = {entry["id"] for entry in self.cases}
        return [path.name for path in self._record_files() if _case_id(path) not in known]

    def _record_files(self) -> list[Path]:
        return sorted((self.path / "records").glob("*.json"))

    def proofs(self) -> dict[str, dict[str, Any]]:
        """Every proof by its key."""
        return {path.stem: _read(path) for path in sorted((self.path / "proofs").glob("*.json"))}

    def hosts(self) -> dict[str, dict[str, Any]]:
        """Every host's fingerprint by name."""
        return {path.stem: _read(path) for path in sorted((self.path / "hosts").glob("*.json"))}

    def write(self, name: str, content: Any) -> None:
        """Write one JSON file whole or not at all; StoreError when the disk refuses."""
        write_whole(self.path / name, json.dumps(content, indent=1) + "\n")


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn what the disk says of a place for a run folder into a RequestError; nothing was started yet."""
    try:
        yield
    except OSError as error:
        raise RequestError(
            f"{path} cannot be a run folder: {error.strerror or error} ({error.filename or path}); "
            "name one that can be made and written with -o"
        ) from error


def _case_id(record: Path) -> str:
    return record.stem.rpartition("-r")[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open() as stream:
            content: dict[str, Any] = json.load(stream)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise StoreError(f"{path} is not readable JSON ({error}); remove it to have it measured again") from error
    return content
