"""A slice of the campaign, and mistakes that it must see; `tox run -e faults` has all of it."""

import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.validation.faults import campaign, machine
from tests.validation.faults.campaign import speed
from tests.validation.faults.faults import FAULTS, damage_noticed
from tests.validation.faults.run import ONE, Run
from tests.validation.faults.witness import Records

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]
GOOD = '{"outcome": "ok"}'


def test_runs_with_a_fault_lose_nothing(tmp_path):
    faults = ["SIGKILL of the controller", "SIGKILL of a rank", "a damaged record", "another damaged file"]
    found = list(campaign.campaign(range(len(faults)), 5, 2, tmp_path, faults, mpi=False))
    assert sorted(each.fault for each in found) == sorted(faults)
    assert sum(each.struck for each in found) >= 3, "one may come too late, not most"
    assert not [problem for each in found for problem in each.problems]


@pytest.mark.parametrize("fault", ["full disk", "broken disk"])
def test_nor_does_one_on_a_bad_disk(tmp_path, fault):
    if not FAULTS[fault].needs():
        pytest.skip("a full disk wants the right to mount, a broken one a compiler for the layer over the C library")
    (found,) = campaign.campaign([0], 5, 1, tmp_path, [fault], mpi=False)
    assert found.problems == []


# --- what it must see: else it proves nothing ---------------------------------------


def run_in(folder: Path, fault: str = "none", cases: tuple[str, ...] = ()) -> Run:
    return Run(0, fault, cases, folder, None, 0, 0.0, random.Random(1))


def one_that_stays(folder: Path) -> list[str]:
    """What is found of a process in a session of its own, elsewhere, without a variable and without a parent."""
    campaign.GOES = 0.5
    run = run_in(folder)
    subprocess.run(["sh", "-c", "env -i setsid sleep 60 >/dev/null 2>&1 &"], cwd="/", check=True)
    campaign.no_orphans(run, "the fault")
    assert not run.processes()
    return run.problems


def test_a_process_that_stays_is_seen_wherever_it_went(tmp_path):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), campaign.begin) as pool:
        (problem,) = pool.submit(one_that_stays, tmp_path).result()
    assert problem.endswith("sleep 60) was left after the fault")


@pytest.mark.parametrize("then", [None, "", '{"outcome": "ok", "seconds": 1}', '{"outcome": "crash"}'])
def test_a_finished_record_that_does_not_stay_is_seen(tmp_path, then):
    """Also one that came and went before the faulted command had ended."""
    records, path = Records(tmp_path), tmp_path / "0123-r0.json"
    path.write_text('{"outcome": "crash"}')
    records.look()
    path.write_text(GOOD)
    records.look()
    assert not records.harm()
    if then is None:
        path.unlink()
    else:
        path.write_text(then)
    records.look()
    path.write_text(GOOD)
    (problem,) = records.harm()
    assert problem.startswith("0123-r0.json, which was finished, ")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = run_in(tmp_path_factory.mktemp("finished"), cases=(ONE,))
    run.prepare()
    assert run.start().wait(campaign.PATIENCE) == 0
    return run.folder


@pytest.fixture
def whole(finished, tmp_path):
    """A run of one case that has all its records, to change."""
    return run_in(shutil.copytree(finished, tmp_path / "whole"), cases=(ONE,))


def test_a_row_that_is_not_what_its_records_say_is_seen(whole, monkeypatch):
    assert not list(campaign.wrong_rows(whole))
    monkeypatch.setattr(campaign, "speed", lambda record: 1.001 * speed(record))
    (problem,) = campaign.wrong_rows(whole)
    assert "samples/s, and its records have" in problem
    monkeypatch.setattr(campaign, "speed", speed)
    whole.cases = (ONE, ONE)
    assert list(campaign.wrong_rows(whole)) == ["1 rows of 2 cases"]
    whole.cases = (ONE,)
    next(iter((whole.path / "records").iterdir())).unlink()
    assert any(re.search("row .*: (ok|incomplete), 1 processes", problem) for problem in campaign.wrong_rows(whole))


def test_damage_that_nobody_noticed_is_seen(tmp_path):
    run = run_in(tmp_path, "a damaged record")
    (tmp_path / "output").write_text("")
    run.damaged["0123-r0.json"] = b"{"
    assert list(damage_noticed(run)) == [
        "the damage of 0123-r0.json was not named",
        "the damaged 0123-r0.json was not kept in invalid/",
        "the damaged 0123-r0.json was not measured again",
    ]


def test_blame_of_another_is_seen(tmp_path):
    run, fault = run_in(tmp_path, "SIGKILL of a rank"), FAULTS["SIGKILL of a rank"]
    run.struck, run.victim = True, "rank 1"
    (tmp_path / "output").write_text("crash: rank 0 was ended by SIGKILL")
    (problem,) = campaign.wrong_end(run, fault, 1)
    assert "is not blamed" in problem
    run.victim = "rank 0"
    assert not list(campaign.wrong_end(run, fault, 1))
    assert list(campaign.wrong_end(run, fault, -9)) == ["the controller was ended by signal 9"]
    assert not list(campaign.wrong_end(run, FAULTS["SIGKILL of the controller"], -9))


CALLS = {
    "open": "open(sys.argv[1])",
    "read": "os.read(os.open(sys.argv[1], os.O_RDWR), 1)",
    "write": "os.write(os.open(sys.argv[1], os.O_RDWR), b'x')",
    "sync": "os.fsync(os.open(sys.argv[1], os.O_RDWR))",
    "rename": "os.replace(sys.argv[1], sys.argv[1] + 'x')",
    "mkdir": "os.mkdir(sys.argv[1] + 'x')",
    "unlink": "os.unlink(sys.argv[1])",
}


@pytest.mark.skipif(not machine.has_compiler(), reason="the layer over the C library wants a compiler")
@pytest.mark.parametrize("call", CALLS)
def test_every_call_of_the_disk_can_be_refused(tmp_path, call):
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "file").write_text("x")
    (tmp_path / "beside").write_text("x")
    bad = {**os.environ, **machine.layered(tmp_path, disk, alone=False)}
    ends = {}
    for name, path in (("beside", tmp_path / "beside"), ("on it", disk / "file")):
        (tmp_path / "bad").write_text(f"once {call}")
        tokens = [sys.executable, "-c", f"import os, sys\n{CALLS[call]}", str(path)]
        ends[name] = subprocess.run(tokens, env=bad, capture_output=True, text=True).stderr.strip().splitlines()[-1:]
    assert ends["beside"] == []
    assert "Input/output error" in ends["on it"][0]
    assert (tmp_path / "bad.struck").exists()


@pytest.mark.skipif(not machine.has_compiler(), reason="the layer over the C library wants a compiler")
def test_a_bundle_that_cannot_be_read_is_a_message(whole):
    (whole.folder / "bad").write_text("lasting read")
    variables = machine.layered(whole.folder, whole.path / "bundles", alone=True)
    assert whole.start(output="again", **variables).wait(campaign.PATIENCE) == 1
    said = whole.output("again")
    assert said.startswith("stagebench: cannot read the bundle ")
    assert "Input/output error; what was measured before is kept." in said


def test_the_page_counts_what_struck(tmp_path):
    kinds = [("none", False), ("full disk", True), ("full disk", False), ("slow disk", True)]
    found = [campaign.Found(n, fault, struck, "completed", []) for n, (fault, struck) in enumerate(kinds)]
    text = campaign.page(found, 7)
    assert "0 of 4 runs did not end as they should. A fault struck 2 of them at a random moment, and\n1 had" in text
    assert {"fault": "full disk", "runs": 1, "ended": "completed 1", "wrong": 0} in campaign.rows(found)
