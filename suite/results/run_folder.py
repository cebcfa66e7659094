"""The run folder: what was asked, where it ran, and one file per record, written whole or not at all.

    RUN/
      run.json                 format, method, version, when, the command line
      plan.toml                the plan as given, with what --set has changed
      networks/NAME.json       the graphs of networks that the plan names by their files
      cases.json               the plan as resolved: its scale, every case with its id, or why it cannot run
      hosts/NAME.json          what each host is
      bundles/ADAPTER/         exactly the code that ran in the framework's interpreter
      records/ID-rN.json       case ID, repeat N
      invalid/                 files in a record's place that were no record of this run, moved here when replaced
      proofs/KEY.json          the proofs that records name
      .lock                    held by the process that measures: two would write the same records and disturb the times
      attempts/ID-rN/          job, rank messages and logs: the evidence behind a record

No other module reads or writes this JSON. Its types are in stagebench.suite.results.records.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import uuid4

from stagebench.suite.errors import RequestError, StoreError, may_pass
from stagebench.suite.files import ROOM, disk, file_name, flush_folder, locked, probe, real, stands, usable, write_whole
from stagebench.suite.plan.read import differences
from stagebench.suite.results.invariants import broken
from stagebench.suite.results.records import METHOD, TRAINING, About, CaseEntry, Cases, Host, Proof, Record
from stagebench.suite.results.stored import CASES, SMALL, Sealed, intact, outsized, read, readable, text_of, understood
from stagebench.suite.text import shown
from stagebench.workloads.graph import Graph

FOLDERS = ("records", "proofs", "attempts", "bundles", "hosts")
EVIDENCE = ("attempts", "bundles")  # each attempt or bundle has a folder, which is made again
LATER = ("invalid", "networks")  # made when first needed
# Remedies for files that cannot be read.
OF_THE_RUN = "put a copy of it back: without it the folder cannot be read, and it is not made again"
OF_CASES = "remove it and give the run's own command again, which writes it anew"
OF_A_RECORD = "it is measured again when the run goes on"
UNREAD = "nothing was lost yet: bring the disk back, then run the same command again"
OF_A_PROOF = "remove it: the rows that name it are without proof until they are measured again"
OF_A_HOST = "remove it: the page then does without it"


class Identity(NamedTuple):
    """Values on which the records of a run folder must agree."""

    run: str  # its id
    plan: str  # the digest of plan.toml; "" without one
    cases: dict[str, Any]  # by id


class RunFolder:
    """The results of one run on disk."""

    def __init__(self, path: Path) -> None:
        """Represent the folder at `path`, which need not exist yet."""
        self.path = path
        self.invalid: dict[str, str] = {}  # the reason for each record file read so far that is no record of this run

    @classmethod
    def open(cls, path: Path, kind: str | None = TRAINING) -> Self:
        """Open an existing run; RequestError for no run folder, a run of another kind, or an unknown format.

        `kind` is a kind of `About`; None takes every run, measured or imported.
        """
        found = about_of(path).kind
        if kind not in (found, None):
            raise RequestError(
                f"{path} holds a run of {found}, and one of {kind} is wanted here; name another run folder"
            )
        return cls(path)

    def create(self, about: About) -> None:
        """Make the folders and write run.json, unless this run has records already (a resume).

        RequestError if no folder can be made there, or if it holds a run of another kind or method, or records of
        another run.
        """
        with usable(self.path):
            if (self.path / "run.json").exists():
                self._check_resumable(about.kind)
            self.make_folders()
        if not self.begun:
            self._write("run.json", about.but(id=about.id or uuid4().hex))

    def begin(self, about: About, plan: str, scale: str | None = None) -> Self:
        """Create the run, or resume it; RequestError if it belongs to another plan, or another scale of the plan."""
        self.create(about)
        # A session that was killed while writing left partial files; those of EVIDENCE stay.
        for name in (".", *FOLDERS, *LATER):
            for left in () if name in EVIDENCE else (self.path / name).glob("*.partial"):
                with suppress(OSError):
                    left.unlink()
        self.adopt_plan(plan, scale)
        return self

    def make_folders(self) -> None:
        """Make all of the run's folders; OSError if the disk refuses, RequestError if one of them is a link."""
        for name in FOLDERS:
            (self.path / name).mkdir(parents=True, exist_ok=True)
        for name in (*FOLDERS, *LATER):
            if (self.path / name).is_symlink():
                raise RequestError(
                    f"{self.path / name} is a link; a run writes into its own folder alone: put the folder itself "
                    "there, or name a new run folder with -o"
                )

    def _check_resumable(self, kind: str) -> None:
        """Raise RequestError for another method's run, or if its intact records are all of one other run.

        All of them would be measured again. A single record of another run may be a stray copy: it is only invalid.
        """
        method = self.open(self.path, kind).about.method
        if self.begun and method != METHOD:
            raise RequestError(
                f"{self.path} was begun by another version of stagebench (run.json has method {method}, this one "
                f"measures by method {METHOD}); go on with that version, or name a new folder with -o"
            )
        own, others = self.about.id, Counter[str]()
        for name in self.record_names():
            try:
                record, text = self.written(self.path / "records" / name)
            except StoreError:
                continue
            if record.run == own:
                return
            if intact(text, record.digest):
                others[record.run] += 1
        other, count = others.most_common(1)[0] if others else ("", 0)
        if count > 1:
            raise RequestError(
                f"{self.path / 'run.json'}: id: it is {own}, and {count} records belong to another run ({other}); "
                "put a copy of run.json back, move these records to another folder, or name a new one with -o"
            )

    @property
    def begun(self) -> bool:
        """True if anything was measured; until then the folder may still become another run's."""
        return bool(self.record_names())

    def adopt_plan(self, text: str, scale: str | None = None) -> None:
        """Store the plan as given; RequestError if the run has records of another plan, or another scale of it."""
        path = self.path / "plan.toml"
        before = text_of(path, OF_THE_RUN).decode(errors="replace") if path.is_file() else None
        same = before == text
        if before is not None and self.begun:
            if not same:
                changes = differences(before, text)
                more = f", and {len(changes) - 3} more" if len(changes) > 3 else ""
                raise RequestError(
                    f"{self.path} was begun with another plan ({path}): "
                    f"{', '.join(changes[:3]) or 'another text'}{more}; "
                    "go on with that one, or name a new folder with -o"
                )
            if (self.path / "cases.json").exists() and self.scale != scale:
                began = f"with --scale {self.scale}" if self.scale else "without --scale"
                raise RequestError(f"{self.path} was begun {began}; go on so, or name a new folder with -o")
        if not same:
            self.__dict__.pop("_identity", None)
            write_whole(path, text)

    def keep_network(self, graph: Graph) -> None:
        """Store the graph of a network that the plan names by its file, since the file may change."""
        with usable(self.path):
            (self.path / "networks").mkdir(exist_ok=True)
        write_whole(self.path / "networks" / f"{graph.name}.json", json.dumps(graph.to_dict(), indent=1) + "\n")

    def own_networks(self) -> set[str]:
        """Return the names of the stored networks, which the plan names by their files."""
        return {path.stem for path in (self.path / "networks").glob("*.json")}

    @property
    def about(self) -> About:
        return about_of(self.path)

    @property
    def resolved(self) -> Cases:
        """The plan as resolved: cases.json."""
        return read(self.path / "cases.json", Cases, OF_CASES, CASES)

    @property
    def scale(self) -> str | None:
        """The scale profile under which the plan was resolved; None: the plan itself."""
        return self.resolved.scale

    @property
    def cases(self) -> tuple[CaseEntry, ...]:
        """Every case of the run, in the plan's order."""
        return self.resolved.cases

    def attempt(self, case_id: str, repeat: int | str) -> Path:
        """Return an attempt's folder, made if necessary, links removed; StoreError if the disk refuses or is full."""
        folder = self.path / "attempts" / f"{case_id}-r{repeat}"
        with disk(f"cannot make {folder}", ROOM):
            for other in irregular(folder):
                other.unlink()
            folder.mkdir(exist_ok=True)
            probe(folder)
        return folder

    def record(self, case_id: str, repeat: int) -> Record | None:
        """Return a record; None if it has not been measured, or the file in its place is `invalid`."""
        path = self._place(case_id, repeat)
        return self._valid(path) if os.path.lexists(path) else None

    def records(self, of: Collection[str] | None = None, names: Sequence[str] | None = None) -> Iterator[Record]:
        """Yield every valid record in the order of file names; `invalid` has the reason for each of the others.

        `of`: the case ids whose records are read; `names`: the file names, of `record_names`; None: all.
        """
        for name in self.record_names() if names is None else names:
            if of is None or case_of(name) in of:
                record = self._valid(self.path / "records" / name)
                if record is not None:
                    yield record

    def unusable(self) -> list[str]:
        """Return the reason for each invalid record; reads all records."""
        for _ in self.records():
            pass
        return list(self.invalid.values())

    def strays(self) -> list[str]:
        """Return the names of record files whose case is not in cases.json, such as those of an older resolution."""
        known = {entry.id for entry in self.cases}
        return [name for name in self.record_names() if case_of(name) not in known]

    def proofs(self) -> dict[str, Proof]:
        """Return the proofs by key; StoreError for a file that holds another proof or was changed."""
        return {path.stem: self.proof(path) for path in sorted((self.path / "proofs").glob("*.json"))}

    @staticmethod
    def proof(path: Path) -> Proof:
        """Return the proof of a file; errors as of `proofs`."""
        text = text_of(path, OF_A_PROOF, SMALL)
        proof = understood(text, path, Proof, OF_A_PROOF)
        if misfit := proof.misfit(path, text):
            raise StoreError(f"{path}: {misfit}", OF_A_PROOF)
        return proof

    def hosts(self) -> dict[str, Host]:
        """Return the hosts by name; StoreError for a file that holds another host."""
        return {path.stem: self.host(path) for path in sorted((self.path / "hosts").glob("*.json"))}

    @staticmethod
    def host(path: Path) -> Host:
        """Return the host of a file; errors as of `hosts`."""
        host = read(path, Host, OF_A_HOST, SMALL)
        if host.host != path.stem:
            raise StoreError(f"{path} holds the host {shown(host.host)}", OF_A_HOST)
        return host

    def write_about(self, about: About) -> None:
        self._write("run.json", about)

    def write_cases(self, entries: Collection[CaseEntry], scale: str | None = None) -> None:
        """Write cases.json; RequestError if the cases are too many to be read again."""
        self._write("cases.json", Cases(scale=scale, plan=self.plan_digest, cases=tuple(entries)))

    def write_record(self, record: Record) -> None:
        """Write a record as this run's, and the hosts that its ranks reported if they are not known yet.

        An invalid file in its place is moved to `invalid/`. Outsized for a record that is too large to be read again;
        StoreError if the disk refuses or the folder is gone.
        """
        path = self._place(record.case_id, record.repeat)
        if not stands(path.parent):
            raise StoreError(
                f"{path.parent} is gone, and {path.name} cannot be written; put the run folder back to go on"
            )
        text = readable(record.but(run=self._identity.run, plan=self._identity.plan).text)
        if os.path.lexists(path) and self._valid(path) is None:
            self._keep_aside(path)
        write_whole(path, text)
        self.invalid.pop(path.name, None)
        for hello in (rank.hello for rank in record.ranks if rank.hello):
            name = file_name(hello.host)
            if hello.machine and not (self.path / "hosts" / f"{name}.json").exists():
                self.write_host(Host(host=name, machine=hello.machine, cores_installed=hello.host_cores))

    def write_proof(self, proof: Proof) -> None:
        """Write a proof that has a key."""
        write_whole(self.path / "proofs" / f"{proof.key}.json", proof.text)

    def write_host(self, host: Host) -> None:
        self._write(f"hosts/{host.host}.json", host)

    def _place(self, case_id: str, repeat: int) -> Path:
        return self.path / "records" / f"{case_id}-r{repeat}.json"

    def _valid(self, path: Path) -> Record | None:
        """Return a file's record; None, with the reason in `invalid`, if it holds no record of this run.

        StoreError if the disk fails for now: the record may be valid.
        """
        try:
            found, text = self.written(path)
        except StoreError as error:
            if may_pass(error):
                raise StoreError(error.args[0], UNREAD) from error.__cause__
            self.invalid[path.name] = str(error).replace(f"{self.path}{os.sep}", "")
            return None
        if misfit := self.misfit(found, path, text):
            self._refuse(path, misfit)
            return None
        self.invalid.pop(path.name, None)  # it may have been replaced since it was read last
        return found

    def written(self, path: Path) -> tuple[Record, bytes]:
        """Return a file's record, of any run, and the file's text; StoreError if it holds no record."""
        text = text_of(path, OF_A_RECORD)
        return understood(text, path, Record, OF_A_RECORD, free=True), text

    def refuse(self, record: Record, why: str) -> None:
        """Add a valid record that its reader cannot use to `invalid`, with the reason."""
        self._refuse(self._place(record.case_id, record.repeat), why)

    def _refuse(self, path: Path, why: str) -> None:
        self.invalid[path.name] = f"records/{path.name}: {why}; {OF_A_RECORD}"

    def _keep_aside(self, path: Path) -> None:
        """Move a file that is no record of this run to `invalid/`; StoreError if the disk refuses."""
        aside = self.path / "invalid"
        with disk(f"cannot move {path} into {aside}", "move it away"):
            aside.mkdir(exist_ok=True)
            places = (aside / f"{path.stem}.{number}.json" for number in count())
            path.rename(next(place for place in places if not os.path.lexists(place)))  # a rename would overwrite
            for folder in (aside, path.parent, self.path):
                flush_folder(folder)

    def record_names(self) -> list[str]:
        """Return the names of the record files, sorted: ten times as fast as paths, for tens of thousands of them."""
        folder = self.path / "records"
        return sorted(name for name in os.listdir(folder) if name.endswith(".json")) if folder.is_dir() else []

    def misfit(self, record: Record, path: Path, text: bytes) -> str | None:
        """Return why a record does not belong to this run and this place, was changed or cannot be; None if valid."""
        identity = self._identity
        if path.name != f"{record.case_id}-r{record.repeat}.json":
            return f"it holds repeat {record.repeat} of the case {record.case_id}, and its name is another one's"
        case = identity.cases.get(record.case_id, record.case)
        if case != record.case:
            key = next(name for name, value in vars(case).items() if value != getattr(record.case, name))
            return f"case.{key}: its case has other values than cases.json gives it"
        if not intact(text, record.digest):
            return "it was changed after it was written: its digest is another one"
        if record.run != identity.run:
            return f"it belongs to another run ({record.run})"
        if record.plan == identity.plan:
            return broken(record)
        return "it belongs to another plan" if identity.plan else "it belongs to a plan, and there is no plan.toml"

    @cached_property
    def _identity(self) -> Identity:
        """The run's identity, read once, and again after one of its files was written."""
        cases = {}
        if (self.path / "cases.json").exists():
            cases = {entry.id: entry.case for entry in self.cases}
        return Identity(self.about.id, self.plan_digest, cases)

    @property
    def plan_digest(self) -> str:
        """The digest of plan.toml; "" without one."""
        plan = self.path / "plan.toml"
        return hashlib.sha256(text_of(plan, OF_THE_RUN)).hexdigest()[:32] if plan.is_file() else ""

    def _write(self, name: str, content: Sealed) -> None:
        """Write one JSON file completely or not at all.

        StoreError if the disk refuses, RequestError if the file would be too large to be read again.
        """
        if name in ("run.json", "cases.json"):
            self.__dict__.pop("_identity", None)
        text, path = content.text.encode(), self.path / name
        if outsized(text, CASES):  # only cases.json grows so large
            raise RequestError(
                f"{path} would have {len(text)} bytes, and {CASES} are read; make several runs of its cases"
            )
        write_whole(path, text)


def about_of(path: Path) -> About:
    """Return a folder's run.json; RequestError without one or for an unknown format, StoreError if it is broken."""
    if not (path / "run.json").is_file():
        raise RequestError(
            f"{path} is not a run folder (no run.json); name one that `stagebench run` or `stagebench comm` has written"
        )
    text = text_of(path / "run.json", OF_THE_RUN, SMALL)
    about = understood(text, path / "run.json", About, OF_THE_RUN)
    if not about.id:
        raise StoreError(f"{path / 'run.json'}: id: it is empty, and no record can be held against it; {OF_THE_RUN}")
    return about


def irregular(folder: Path) -> list[Path]:
    """Return the paths that are neither folders nor regular files: `folder` itself, and all below it.

    Writing through a link would leave the folder, and opening a pipe would wait forever.
    """
    below = (Path(root) / name for root, folders, files in os.walk(folder) for name in (*folders, *files))
    return [
        path
        for path in (folder, *below)
        if path.is_symlink() or (path.exists() and not (path.is_file() or path.is_dir()))
    ]


def case_of(record: str) -> str:
    return record.removesuffix(".json").rpartition("-r")[0]


_OURS: set[Path] = set()  # the folders that this process holds: its session may hold one that the command line holds
LOCK = ".lock"  # in the run folder


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run folder, which is made if necessary; a process may hold it repeatedly.

    RequestError if another process holds it (its id is in the message), or if the folder cannot be made or locked.
    """
    place = real(folder)
    if place in _OURS:
        yield
        return

    def refuse(holder: str) -> None:
        raise RequestError(
            f"{folder} is in use by another session (process {holder}); wait for it, end it, "
            "or name another folder with -o"
        )

    with ExitStack() as stack:
        with usable(folder):
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                flush_folder(place.parent)
            stack.enter_context(locked(folder / LOCK, refuse))
        _OURS.add(place)
        stack.callback(_OURS.discard, place)
        yield
