"""Engines: what real ones printed when a rank died on another host, and what they report of themselves."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from stagebench.cluster.dialects import MPICH_FAILURES, OPEN_MPI_FAILURES
from stagebench.cluster.slurm.launcher import PATTERNS
from stagebench.suite.contracts.engine_messages import Begun
from stagebench.suite.contracts.launcher import FailurePatterns, Process
from stagebench.suite.processes.attempt import Attempt, Limits, run
from stagebench.suite.processes.evidence import missed, named_deaths
from stagebench.suite.worker.messages import encode
from tests.support.sent import failed, hello

# Open MPI 5.0.11: rank 1 was killed on b, rank 0 ended the job before the daemon on b could tell.
CLOSED = """\
[a:00000] *** An error occurred in Socket closed
[a:00000] *** reported by process [1534984193,0]
[a:00000] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
--------------------------------------------------------------------------
prterun has exited due to process rank 0 with PID 19156 on node a calling
"abort". This may have caused other processes in the application to be
terminated by signals sent by prterun (as reported here).
--------------------------------------------------------------------------
\0"""
PEER = """\
An MPI communication peer process has unexpectedly disconnected.  This
usually indicates a failure in the peer process (e.g., a crash or
otherwise exiting without calling MPI_FINALIZE first).

  Local host: a
  Local PID:  31727
  Peer host:  b
--------------------------------------------------------------------------
"""
# MPICH 4.3.2: a rank was killed, and the other host's proxy took that badly.
HYDRA = """\
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 26042 RUNNING AT b
=   EXIT CODE: {code}
=   CLEANING UP REMAINING PROCESSES
"""
UNSURE = "[mpiexec@a] main (mpiexec.c:260): process manager error waiting for completion\n"
SIGNAL = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"


# Slurm 22.05 with Open MPI 5: rank 1 was killed, rank 0 missed it and left; the nodes report in either order.
LEFT, KILLED = "srun: error: a: task 0: Exited with exit code 14\n", "srun: error: b: task 1: Killed\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (KILLED + LEFT, [(1, -9), (0, 14)]),
        (LEFT + KILLED, [(1, -9), (0, 14)]),
        (LEFT, [(0, 14)]),
        ("srun: forcing\n", []),
    ],
)
def test_srun_names_a_killed_rank_and_one_that_left_in_either_order(tmp_path, text, found):
    (tmp_path / "log").write_text(text)
    assert named_deaths(tmp_path / "log", PATTERNS, {}) == found


@pytest.mark.parametrize(
    ("text", "found"), [(CLOSED, (None, 0)), (PEER, ("b", None)), (PEER + CLOSED, ("b", 0)), ("all is well\n", None)]
)
def test_who_was_missed_by_whom(tmp_path, text, found):
    (tmp_path / "log").write_text(text)
    assert missed(tmp_path / "log", OPEN_MPI_FAILURES) == found
    assert named_deaths(tmp_path / "log", OPEN_MPI_FAILURES, {}) == [], "an abort is an answer, not the first death"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (HYDRA.format(code=9) + SIGNAL, -9),
        (HYDRA.format(code=9) + UNSURE, -9),
        (HYDRA.format(code=1) + UNSURE, 1),
        (HYDRA.format(code=9), 9),
    ],
)
def test_mpich_forgets_the_word_signal_where_two_hosts_ended_badly(tmp_path, text, code):
    (tmp_path / "log").write_text(text)
    assert named_deaths(tmp_path / "log", MPICH_FAILURES, {26042: 3})[0] == (3, code)


def test_a_pattern_that_names_no_rank_is_refused():
    with pytest.raises(ValueError, match="pid or rank"):
        FailurePatterns(deaths=(re.compile(r"rank (\d+) died"),))


@pytest.mark.parametrize(
    ("report", "blamed"),
    [
        ("ValueError: the layer is upside down", "rank 1: ValueError: the layer is upside down"),
        ("RuntimeError: Connection closed by peer [10.77.0.1]:4711", "rank 0 was ended by SIGKILL"),
        ("Exception: Other MPI error, error stack: ...", "rank 0 was ended by SIGKILL"),
    ],
)
def test_mpich_s_daemon_may_name_a_rank_that_it_killed_itself(tmp_path, report, blamed):
    sent = [encode(each) for each in (hello(pid=26042), hello(rank=1, pid=26043), failed(report, time_s=2.0))]
    engine = tmp_path / "engine.py"
    engine.write_text(
        "import pathlib, sys\n"
        f"sent = {sent!r}\n"
        "for rank, messages in enumerate((sent[:1], sent[1:])):\n"
        "    lines = ''.join(message + chr(10) for message in messages)\n"
        "    pathlib.Path(f'rank-{rank}.jsonl').write_text(lines)\n"
        f"print({HYDRA.format(code=9) + SIGNAL!r}, flush=True)\n"
        "sys.exit(9)\n"
    )
    process = Process((sys.executable, str(engine)), failures=MPICH_FAILURES)
    result = run([process], 2, tmp_path, Limits(20, 20), lambda rank, message: None)
    assert result.outcome == "crash"
    assert result.reason.startswith(blamed)


CHECKOUT = Path(__file__).parents[2]
ENGINE = f"""
import signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(CHECKOUT)!r})
from stagebench.suite.contracts.engine_messages import Begun, EngineFailed, report
from stagebench.suite.worker.messages import Done
from stagebench.suite.worker.ranks import Outbox
from tests.support.sent import failed, hello
rank = Outbox(".", 0)
"""
DONE = "rank.send(hello()); rank.send(Done());"
DIED = "rank.send(hello()); rank.send(failed('the others have gone'));"


def engine(folder: Path, program: str, limit: float = 300, **more: Any) -> Attempt:
    process = Process((sys.executable, "-c", ENGINE + program), known_by=("motor",), **more)
    return run([process], 1, folder, Limits(limit, limit), lambda rank, message: None)


def test_the_limits_count_from_the_end_of_the_queue(tmp_path):
    found = engine(tmp_path, "time.sleep(4); report(Path(), Begun('7'));" + DONE, limit=3, queues=True)
    assert (found.outcome, found.reason) == ("ok", "")
    assert found.evidence["engine"] == [Begun("7")]
    found = engine(tmp_path, "time.sleep(1); report(Path(), Begun()); time.sleep(1000)", limit=1, queues=True)
    assert found.outcome == "timeout"
    assert found.seconds >= 2


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
