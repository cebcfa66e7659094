"""The records of a run as processes. Of many, a second interpreter on another core reads half."""

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile

from suite.analysis.measured import Process, process_of
from suite.errors import StagebenchError
from suite.processes.guard import guarded
from suite.results.records import Record
from suite.results.run_folder import RunFolder
from suite.suggest import shown

TOGETHER = 200  # records that are read before any is looked at: in turns, each takes a third longer
MANY = 4000  # records: fewer are read before another interpreter has begun
OURS = 0.53  # of the records: the other one begins later, and passes on what it finds

Found = list[tuple[str, Process]]  # by case id


def read(folder: RunFolder, cases: Collection[str], method: int) -> Iterator[Found]:
    """Every record of these case ids, in no order; `folder.invalid` names afterwards what is none."""
    names = folder.record_names()
    if len(names) < MANY or len(os.sched_getaffinity(0)) < 2:
        yield from _part(folder, cases, method, names)
        return
    ours, theirs = names[: int(OURS * len(names))], names[int(OURS * len(names)) :]
    # Not from the folder where we stand: somebody else's code may be there, or another release's.
    command = (sys.executable, "-P", "-m", __name__, str(folder.path), theirs[0], theirs[-1])
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (
        TemporaryFile() as found,
        subprocess.Popen(
            guarded(command, 0.0, 0.0), stdout=found, stderr=subprocess.DEVNULL, env=environ, start_new_session=True
        ) as other,
    ):
        try:
            yield from _part(folder, cases, method, ours)
        except BaseException:
            other.terminate()  # its guard ends it
            raise
        if other.wait() != 0:  # whatever went wrong there, if it does here it is said
            yield from _part(folder, cases, method, theirs)
            return
        found.seek(0)
        while some := pickle.load(found):
            yield some
        folder.invalid = dict(sorted({**folder.invalid, **pickle.load(found)}.items()))


def _part(folder: RunFolder, cases: Collection[str], method: int, names: Sequence[str]) -> Iterator[Found]:
    records = folder.records(cases, names)
    while several := list(islice(records, TOGETHER)):
        derived = [(record.case_id, _process(folder, record, method)) for record in several]
        yield [(case_id, process) for case_id, process in derived if process]


def _process(folder: RunFolder, record: Record, method: int) -> Process | None:
    """None where its values are each possible and no figures come of them; `folder.invalid` has the reason."""
    try:
        return process_of(record, method)
    except (StagebenchError, MemoryError):
        raise
    except Exception as error:  # one record, whoever wrote it, does not keep the others from being shown
        problem = f"no figures come of its values ({type(error).__name__}: {shown(str(error), 200)[1:-1]})"
        folder.refuse(record, problem)
        return None


def main(path: str, first: str, last: str) -> None:
    """The other one: the records from one name to another, an empty list after the last, and why records are none."""
    gc.disable()  # as whoever reads the first part
    folder, stream = RunFolder.open(Path(path)), sys.stdout.buffer
    names = [name for name in folder.record_names() if first <= name <= last]  # others may have come meanwhile
    for some in _part(folder, {entry.id for entry in folder.cases}, folder.about.method, names):
        pickle.dump(some, stream, pickle.HIGHEST_PROTOCOL)
    pickle.dump([], stream)
    pickle.dump(folder.invalid, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
