"""Many records are read by two interpreters: the rows are the same, whatever becomes of the other one."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from suite.analysis import two_readers
from suite.analysis.summary import summarise, unused_records
from tests.reports.made_run import case_of


def told(folder):
    return json.dumps([row.to_dict() for row in summarise(folder)])


@pytest.mark.parametrize("works", [True, False])
def test_rows_are_the_same_and_so_are_the_names_of_what_is_invalid(run, monkeypatch, works):
    first, second = run.proven(case_of(ranks=2)), run.proven(case_of("caffempi"))
    run.changed(first, lambda record: record.update(repeat=7), [0])
    run.changed(second, lambda record: record.update(repeat=7), [0, 1])
    alone, named = told(run.folder), unused_records(run.folder)
    monkeypatch.setattr(two_readers, "MANY", 1)
    monkeypatch.setattr(two_readers.os, "sched_getaffinity", lambda _: {0, 1})
    asked = two_readers.subprocess.Popen
    others = []
    executable = sys.executable if works else "/bin/false"
    monkeypatch.setattr(
        two_readers.subprocess,
        "Popen",
        lambda command, **more: others.append(asked([executable, *command[1:]], **more)) or others[-1],
    )
    assert (told(run.folder), unused_records(run.folder)) == (alone, named)
    assert [other.returncode == 0 for other in others] == [works]
    assert named.startswith("3 records skipped")


def test_code_where_we_stand_is_not_run(run, monkeypatch, tmp_path):
    run.proven(case_of())
    (tmp_path / "here" / "suite").mkdir(parents=True)
    (tmp_path / "here" / "suite" / "__init__.py").write_text("open('ran', 'w').close()")
    monkeypatch.setattr(two_readers, "MANY", 1)
    monkeypatch.setattr(two_readers.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.chdir(tmp_path / "here")
    assert told(run.folder)
    assert not (tmp_path / "here" / "ran").exists()


def test_a_record_that_comes_meanwhile_moves_none_from_one_reader_to_the_other(run, monkeypatch):
    """A page of a run in progress: the other one lists the records later."""
    case = run.proven(case_of())
    name, *_ = run.folder.record_names()
    newest = run.folder.path / "records" / name
    text = newest.read_bytes()
    newest.unlink()
    monkeypatch.setattr(two_readers, "MANY", 1)
    monkeypatch.setattr(two_readers.os, "sched_getaffinity", lambda _: {0, 1})
    asked = two_readers.subprocess.Popen
    monkeypatch.setattr(
        two_readers.subprocess, "Popen", lambda *command, **more: newest.write_bytes(text) and asked(*command, **more)
    )
    found = [process.repeat for some in two_readers.read(run.folder, [case.id], 4) for _, process in some]
    assert sorted(found) == [1, 2]


# Shows a run, and stays at the first records: RUN FOLDER-WHOSE-CODE-THE-OTHER-BEGINS-WITH
READER = """
import sys, time
from pathlib import Path
from suite.analysis import two_readers
from suite.results.run_folder import RunFolder
two_readers.MANY = 1
two_readers.os.sched_getaffinity = lambda _: {0, 1}
folder = RunFolder.open(Path(sys.argv[1]))
sys.path.insert(0, sys.argv[2])
found = two_readers.read(folder, {entry.id for entry in folder.cases}, folder.about.method)
next(found)
print("reading", flush=True)
time.sleep(60)
"""


def test_the_other_does_not_outlive_the_first(run, tmp_path):
    run.proven(case_of())
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(60)")  # else it ends of itself, and soon
    tokens = [sys.executable, "-c", READER, str(run.folder.path), str(tmp_path)]
    with subprocess.Popen(tokens, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"reading\n"
        below = psutil.Process(first.pid).children(recursive=True)
        first.kill()
    assert below
    assert not psutil.wait_procs(below, 10)[1]
