"""Many records are read by a pool of processes: the rows are the same, even if its processes die."""

import json
import multiprocessing.spawn
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from stagebench.suite.analysis import summary
from stagebench.suite.analysis.summary import summarise, unused_records
from tests.reports.made_run import case_of


@pytest.fixture
def parallel(monkeypatch):
    """Two cores, and a chunk for every record."""
    monkeypatch.setattr(summary, "PARALLEL_FROM", 1)
    monkeypatch.setattr(summary, "CHUNK", 1)
    monkeypatch.setattr(summary.os, "sched_getaffinity", lambda _: {0, 1})


def rows_as_json(folder):
    return json.dumps([row.to_dict() for row in summarise(folder)])


@pytest.mark.parametrize("executable", [sys.executable, "/bin/false"], ids=["working", "dying"])
def test_rows_are_the_same_and_so_are_the_names_of_what_is_invalid(run, monkeypatch, parallel, executable):
    first, second = run.proven(case_of(ranks=2)), run.proven(case_of("caffempi"))
    run.changed(first, lambda record: record.update(repeat=7), [0])
    run.changed(second, lambda record: record.update(repeat=7), [0, 1])
    with monkeypatch.context() as serial:
        serial.setattr(summary, "PARALLEL_FROM", 10)
        expected, named = rows_as_json(run.folder), unused_records(run.folder)
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", os.fsencode(executable))
    read_here, processes_of = [], summary._processes
    monkeypatch.setattr(summary, "_processes", lambda *chunk: read_here.append(chunk) or processes_of(*chunk))
    assert (rows_as_json(run.folder), unused_records(run.folder)) == (expected, named)
    assert bool(read_here) == (executable == "/bin/false")
    assert named.startswith("3 records skipped")


@pytest.mark.parametrize("package", ["stagebench", "multiprocessing"])
def test_code_in_the_current_folder_is_not_run(run, monkeypatch, tmp_path, parallel, package):
    run.proven(case_of())
    (tmp_path / "here" / package).mkdir(parents=True)
    (tmp_path / "here" / package / "__init__.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path / "here")
    assert rows_as_json(run.folder)
    assert not (tmp_path / "here" / "ran").exists()


# Reads a run, and stays at the first record: RUN
READER = """
import sys, time
from pathlib import Path
from stagebench.suite.analysis import summary
from stagebench.suite.results.run_folder import RunFolder
if __name__ == "__main__":
    summary.PARALLEL_FROM = summary.CHUNK = 1
    summary.os.sched_getaffinity = lambda _: {0, 1}
    folder = RunFolder.open(Path(sys.argv[1]))
    found = summary.read_processes(folder, {entry.id for entry in folder.cases}, folder.about.method)
    next(found)
    print("reading", flush=True)
    time.sleep(60)
"""


def test_the_pool_does_not_outlive_a_parent_that_is_killed(run):
    run.proven(case_of())
    tokens = [sys.executable, "-c", READER, str(run.folder.path)]
    with subprocess.Popen(tokens, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"reading\n"
        below = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    assert below
    assert not psutil.wait_procs(below, 10)[1]
