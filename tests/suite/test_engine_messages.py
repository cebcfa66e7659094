"""What an engine reports of itself: a queue does not count, a failure that it is certain of explains the ranks'."""

import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.slurm.launcher import PATTERNS
from suite.contracts.engine_messages import Begun
from suite.contracts.launcher import Process
from suite.processes.attempt import Attempt, Limits, run

CHECKOUT = Path(__file__).parents[2]
ENGINE = f"""
import signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(CHECKOUT)!r})
from suite.contracts.engine_messages import Begun, EngineFailed, report
from suite.worker.messages import Done
from suite.worker.ranks import Outbox
from tests.support.sent import failed, hello
rank = Outbox(".", 0)
"""
DONE = "rank.send(hello()); rank.send(Done());"
DIED = "rank.send(hello()); rank.send(failed('the others have gone'));"


def engine(folder: Path, program: str, limit: float = 20, **more: Any) -> Attempt:
    process = Process((sys.executable, "-c", ENGINE + program), known_by=("motor",), **more)
    return run([process], 1, folder, Limits(limit, limit), lambda rank, message: None)


def test_the_limits_count_from_the_end_of_the_queue(tmp_path):
    found = engine(tmp_path, "time.sleep(2); report(Path(), Begun('7'));" + DONE, limit=1, queues=True)
    assert (found.outcome, found.reason) == ("ok", "")
    assert found.evidence["engine"] == [Begun("7")]
    found = engine(tmp_path, "time.sleep(1); report(Path(), Begun()); time.sleep(30)", limit=1, queues=True)
    assert found.outcome == "timeout"
    assert 2 <= found.seconds < 10


@pytest.mark.parametrize(
    ("certain", "outcome", "reason"),
    [(True, "timeout", "job 7 was out of time"), (False, "crash", "rank 0: the others have gone")],
)
def test_what_it_is_certain_of_explains_the_ranks_reports(tmp_path, certain, outcome, reason):
    reports = f"report(Path(), EngineFailed('timeout', 'job 7 was out of time', time.time(), {certain}));"
    found = engine(tmp_path, DIED + reports + "sys.exit(1)")
    assert (found.outcome, found.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("code", "words"),
    [(3, "exit code 3"), (137, "exit code 137 (128 + SIGKILL) and does not say which of its processes was killed")],
)
def test_without_a_report_its_exit_code_is_given_and_it_by_name(tmp_path, code, words):
    found = engine(tmp_path, f"rank.send(hello()); sys.exit({code})")
    assert (found.outcome, found.reason) == ("crash", f"motor ended with {words}")


def test_what_an_earlier_attempt_reported_is_forgotten(tmp_path):
    old = '{"type": "engine failed", "kind": "crash", "message": "old", "time_s": 1.0}\n'
    (tmp_path / "engine.jsonl").write_text(old)
    assert engine(tmp_path, DONE).outcome == "ok"


@pytest.mark.parametrize(("patience", "tidied"), [(10.0, True), (0.5, False)])
def test_it_gets_the_time_to_end_that_it_needs(tmp_path, patience, tidied):
    slow = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(2), open('tidied', 'w'), sys.exit(1)));"
    engine(tmp_path, slow + "time.sleep(30)", limit=1, patience=patience)
    assert (tmp_path / "tidied").exists() == tidied


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("srun: error: lab2: task 0: Killed", "rank 0 was ended by SIGKILL"),
        # Open MPI's abort lets Slurm kill the others: whose node answers first stands first.
        (
            "srun: error: lab1: task 0: Killed\nsrun: error: lab2: task 1: Killed",
            "rank 0 was ended by SIGKILL (so was rank 1, and who was first is not known)",
        ),
        ("srun: error: lab2: task 0: Segmentation fault (core dumped)", "rank 0 was ended by SIGSEGV"),
        ("srun: error: lab1: tasks 0-1: Exited with exit code 9", "rank 0 ended with exit code 9"),
        ("srun: error: Unable to create step for job 7: Invalid", "motor ended with exit code 1"),
    ],
)
def test_srun_names_the_rank_that_died_first(tmp_path, line, reason):
    found = engine(tmp_path, f"rank.send(hello()); print({line!r}); sys.exit(1)", failures=PATTERNS)
    assert found.reason.startswith(reason)
