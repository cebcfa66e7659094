import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from stagebench.suite.contracts.launcher import Process
from stagebench.suite.errors import StoreError
from stagebench.suite.processes import attempt, watchdog
from stagebench.suite.processes import group as processes
from stagebench.suite.processes.attempt import Limits
from stagebench.suite.processes.group import Group
from stagebench.suite.worker.messages import name_of
from tests.support.started import running_in, wait_until

CHECKOUT = Path(__file__).parents[2]
LIMITS = Limits(total_s=300, silence_s=300)  # what a busy machine may take

# What a rank does before its own lines: it sends what the real worker sends.
PRELUDE = f"""
import os, signal, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, {str(CHECKOUT)!r})
from stagebench.suite.contracts.engine_messages import Begun, report
from stagebench.suite.worker.messages import Done, Phase, Progress
from stagebench.suite.worker.ranks import Outbox
from tests.support.sent import failed, hello, joined
rank = int(os.environ["STAGEBENCH_RANK"])
log = os.open("rank-%d.log" % rank, os.O_WRONLY | os.O_CREAT)
out = Outbox(".", rank)
def wait_for(path): # another rank wrote this
    while not os.path.exists(path): time.sleep(0.01)
    time.sleep(0.05)
def begin(): # every rank has said all that comes before: the limits count from now on
    open("begins-%d" % rank, "w").close()
    if rank == 0:
        for other in range(int(os.environ["STAGEBENCH_WORLD"])): wait_for("begins-%d" % other)
        report(Path("."), Begun())
out.send(hello(rank=rank, pid=os.getpid()))
"""
DONE = "out.send(Done())"
FOREVER = "time.sleep(1000)"
# Memory without room behind it, as in a full /dev/shm.
BUS_ERROR = (
    "import mmap; file = open('m', 'w+b'); file.truncate(9); m = mmap.mmap(file.fileno(), 9); file.truncate(0); m[0]"
)


def rank(number, body, world=1):
    environ = {"STAGEBENCH_RANK": str(number), "STAGEBENCH_WORLD": str(world)}
    return Process((sys.executable, "-c", PRELUDE + body), environ, number, queues="begin()" in body)


def run(folder, *bodies, limits=LIMITS, on_message=lambda rank, message: None):
    ranks = [rank(number, body, len(bodies)) for number, body in enumerate(bodies)]
    return attempt.run(ranks, len(bodies), folder, limits, on_message)


@pytest.fixture(autouse=True)
def nothing_left(tmp_path):
    """After every test no process stands in the attempt's folder."""
    yield
    assert running_in(tmp_path) == []


@pytest.fixture
def short_grace(monkeypatch):
    monkeypatch.setattr(watchdog, "GRACE", 0.5)


def test_ranks_that_are_done_are_ok_and_their_messages_come_in_order(tmp_path):
    received = []
    body = "out.send(Phase('native')); out.send(Progress('native', 'measure', 1, 5));" + DONE
    result = run(tmp_path, body, body, on_message=lambda rank, message: received.append((rank, name_of(message))))
    assert (result.outcome, result.reason) == ("ok", "")
    for number in (0, 1):
        assert [kind for who, kind in received if who == number] == ["hello", "phase", "progress", "done"]
        assert [name_of(message) for message in result.messages[number]] == ["hello", "phase", "done"]
    assert result.evidence["exit_codes"] == {"rank 0": 0, "rank 1": 0}
    assert result.evidence["limits"] == {"total_s": 300, "silence_s": 300, "joining_s": None}
    assert 0 < result.seconds < 300
    json.dumps(result.evidence)


def test_ranks_that_are_not_where_they_should_be_end_before_they_measure(tmp_path):
    ranks = [rank(number, "out.send(joined(world=2)); " + FOREVER) for number in (0, 1)]
    asked = []

    def misplaced(sent):
        asked.append([[name_of(message) for message in its] for its in sent.values()])
        return "both on one core"

    working = attempt.running(ranks, 2, tmp_path, LIMITS, lambda rank, message: None, misplaced=misplaced)
    result = attempt.in_one_go(working)
    assert (result.outcome, result.reason) == ("crash", "both on one core")
    assert asked == [[["hello", "joined"]] * 2]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("os.write(log, b'it hurts\\n'); os._exit(3)", "rank 1 ended with exit code 3 after 'hello'; its last lines: "),
        ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1 was ended by SIGKILL after 'hello'"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "rank 1 was ended by SIGSEGV"),
        (BUS_ERROR, "rank 1 was ended by SIGBUS (as when /dev/shm is full: a container's --shm-size) after 'hello'"),
        ("raise ValueError('no such layer')", "rank 1 ended with exit code 1 after 'hello'; its last lines: "),
        ("out.send(Done()); os._exit(4)", "rank 1 ended with exit code 4 after 'done'"),
    ],
)
@pytest.mark.usefixtures("short_grace")
def test_a_dead_rank_ends_the_group_and_is_blamed(tmp_path, end, reason):
    result = run(tmp_path, FOREVER, end)
    assert result.outcome == "crash"
    assert reason in result.reason
    assert result.evidence["stopped"]["why"] == "grace"
    assert result.evidence["exit_codes"]["rank 0"] == -signal.SIGTERM


@pytest.mark.parametrize("kind", ["unsupported", "unavailable", "oom", "diverged", "crash"])
def test_the_first_failure_decides_and_the_others_are_still_received(tmp_path, kind):
    first = f"wait_for('up'); out.send(failed('E: first', {kind!r})); open('reported', 'w').close(); os._exit(1)"
    second = (
        "open('up', 'w').close(); wait_for('reported'); out.send(failed('peer closed the connection')); os._exit(1)"
    )
    result = run(tmp_path, second, first)
    assert result.outcome == kind
    assert result.reason == "rank 1: E: first"
    assert result.messages[0][-1].message == "peer closed the connection"
    assert result.evidence["stopped"] is None


OUT = "os.write(log, b'W0000 bfc_allocator.cc:501] Allocator (mklcpu) ran out of memory trying to allocate\\n');"
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
ABORTS = "os.write(log, b\"terminate called after throwing an instance of 'std::bad_alloc'\\n\"); os.abort()"


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("out.send(failed('E: the arena is full')); os._exit(1)", "oom"),
        ("out.send(failed('E: the arena is full', 'unavailable')); os._exit(1)", "unavailable"),
        ("out.send(failed('E: reader 7 was killed by signal 9')); os._exit(1)", "crash"),
        (ABORTS, "oom"),
        (OUT + "os.kill(os.getpid(), signal.SIGSEGV)", "oom"),
        (OUT + "os._exit(1)", "crash"),
        ("os.write(log, b'no reason\\n'); os.abort()", "crash"),
    ],
)
def test_out_of_memory_is_what_the_framework_calls_so(tmp_path, end, outcome):
    processes = [rank(0, end)]
    assert attempt.run(processes, 1, tmp_path, LIMITS, lambda *_: None, ["Arena is full"]).outcome == outcome


@pytest.mark.parametrize(("host", "outcome"), [("a", "oom"), ("b", "crash")])
@pytest.mark.parametrize("end", ["out.send(failed('E: reader 7 was killed by signal 9')); os._exit(1)", KILLED])
def test_what_the_kernel_of_the_rank_s_own_host_killed_is_oom(tmp_path, host, outcome, end):
    """The rank's host is "a". Two logins there report the same two kills."""
    line = f"{{'type': 'oom kills', 'host': {host!r}, 'processes': 2}}"
    reports = f"import json; open('engine.jsonl', 'a').write(2 * (json.dumps({line}) + chr(10)))"
    result = run(tmp_path, f"{reports}; {end}")
    assert (result.outcome, result.evidence["oom_kills"]) == (outcome, 2)
    assert ("the kernel ended 2 process(es)" in result.reason) is (outcome == "oom")


REPORTED = "open('reported', 'w').close();"
WAITS = "open('up', 'w').close(); wait_for('reported');"


@pytest.mark.parametrize(
    ("complains", "dies", "number"),
    [
        ("wait_for('reported'); out.send(failed('peer hung up')); os._exit(1)", REPORTED, "SIGKILL"),
        # Reported before it was noticed; by a signal that might be an answer, where the other names the rank.
        (f"wait_for('up'); out.send(failed('peer hung up')); {REPORTED} {FOREVER}", WAITS, "SIGKILL"),
        (f"wait_for('up'); out.send(failed('rank 1 hung up')); {REPORTED} {FOREVER}", WAITS, "SIGTERM"),
    ],
)
def test_a_silent_death_is_blamed_before_who_complains_of_it(tmp_path, monkeypatch, complains, dies, number):
    monkeypatch.setattr(watchdog, "GRACE", 2.0)
    result = run(tmp_path, complains, f"{dies} os.kill(os.getpid(), signal.{number})")
    assert result.outcome == "crash"
    assert result.reason.startswith(f"rank 1 was ended by {number}")


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        (["out.send(Phase('build'));begin();" + FOREVER], "rank 1 sent no message for 1 s (silence limit) in build"),
        ([], "all ranks were done, yet did not end"),
    ],
)
def test_a_silent_rank_is_a_timeout_and_one_that_is_done_may_be_silent_while_others_are_not(tmp_path, others, reason):
    result = run(tmp_path, f"{DONE};begin();{FOREVER}", *others, limits=Limits(total_s=300, silence_s=1))
    assert result.outcome == "timeout"
    assert reason in result.reason


def test_who_has_not_joined_may_have_less_patience_than_who_compiles(tmp_path):
    limits = Limits(total_s=300, silence_s=300, joining_s=1)
    compiles = "out.send(joined()); begin(); time.sleep(2);" + DONE
    assert run(tmp_path / "a", compiles, limits=limits).outcome == "ok"
    result = run(tmp_path / "b", compiles, f"begin();{FOREVER}", limits=limits)
    assert result.outcome == "timeout"
    assert result.reason == "rank 1 sent no message for 1 s (silence limit) after 'hello'"


def test_the_time_limit_ends_a_rank_that_talks_and_names_its_step(tmp_path):
    talks = "begin()\nwhile 1: out.send(Progress('native', 'measure', 7, 50)); time.sleep(0.05)"
    result = run(tmp_path, talks, f"{DONE};begin()", limits=Limits(total_s=1.5, silence_s=300))
    assert result.outcome == "timeout"
    assert result.reason == "rank 0 not done within the time limit of 1.5 s in native (measure, step 7 of 50)"


def test_a_rank_that_ignores_sigterm_is_killed(tmp_path):
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN);begin();" + FOREVER
    result = run(tmp_path, body, limits=Limits(total_s=1, silence_s=300))
    assert result.evidence["exit_codes"] == {"rank 0": -signal.SIGKILL}
    assert result.outcome == "timeout"


def test_megabytes_of_output_neither_block_nor_stay_in_memory(tmp_path):
    result = run(tmp_path, "[print('x' * 9999) for _ in range(3000)];" + DONE)
    assert result.outcome == "ok"
    assert (tmp_path / "launcher-0.log").stat().st_size == 3000 * 10000
    assert result.evidence["logs"]["launcher-0.log"] == ["x" * 300] * 7


ORPHANS = {
    "same session": "subprocess.Popen(['/bin/sleep', '1000'])",
    "cleared environment": "subprocess.Popen(['/bin/sleep', '1000'], env={})",
    "own session": "subprocess.Popen(['/bin/sleep', '1000'], start_new_session=True)",
    "a daemon's ways": "subprocess.run(['setsid', '-f', 'env', '-i', 'sh', '-c', 'setsid -f sleep 1000'])",
    "ignores SIGTERM": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; sleep 1000'], env={}, start_new_session=True)",
}


@pytest.mark.parametrize("orphan", ORPHANS.values(), ids=ORPHANS)
def test_what_a_rank_leaves_behind_is_ended(tmp_path, orphan):
    assert run(tmp_path, f"{orphan};{DONE}").outcome == "ok"
    assert running_in(tmp_path) == []


def test_the_kernel_kills_a_rank_rather_than_the_controller(tmp_path):
    both = "''.join(open(f'/proc/{pid}/oom_score_adj').read() for pid in ('self', os.getppid()))"
    run(tmp_path, f"import os;open('score', 'w').write({both});{DONE}")
    own = int(Path("/proc/self/oom_score_adj").read_text())
    rank, guard = map(int, (tmp_path / "score").read_text().split())
    assert rank == 1000 > guard == own


def test_a_child_that_others_started_is_left_alone(tmp_path):
    """Several attempts and probes run side by side: the doctor asks many interpreters at once."""
    started = []
    start = lambda: started.append(subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True))  # noqa: E731
    threading.Timer(0.2, start).start()
    try:
        run(tmp_path, f"time.sleep(1);{DONE}")
        (other,) = started
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_an_error_of_the_listener_and_a_person_s_interrupt_end_the_group_and_go_on(tmp_path):
    def listener(rank, message):
        raise LookupError("display")

    with pytest.raises(LookupError, match="display"):
        run(tmp_path, FOREVER, on_message=listener)
    assert running_in(tmp_path) == []
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, FOREVER, FOREVER)
    assert running_in(tmp_path) == []


def test_a_second_interrupt_while_the_group_is_ended_takes_no_child_from_its_waiter(tmp_path, monkeypatch):
    """Ctrl-C in a join takes the thread for ended; it then waited for a child that was reaped, with a traceback."""

    def slowly(kind, pid, options):
        while (found := waitid(kind, pid, options | os.WNOHANG)) is None:
            time.sleep(0.3)
        return found

    waitid = os.waitid

    def interrupt(rank, message):
        if name_of(message) == "phase":  # it is deaf by now
            for seconds in (0.2, 0.7):
                threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()

    monkeypatch.setattr(os, "waitid", slowly)
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); out.send(Phase('deaf'));" + FOREVER
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, deaf, on_message=interrupt)
    assert running_in(tmp_path) == []


# A container's process 1 has no parent but the kernel, and is the parent of all orphans.
CONTAINED = pytest.param(
    ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    id="in a container",
    marks=pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes wants root"),
)


def controller(folder, body):
    """The program of a controller of one rank, which does this."""
    return f"""
import sys
sys.path[:0] = [{str(CHECKOUT)!r}]
from pathlib import Path
from stagebench.suite.processes.attempt import Limits, run
from stagebench.suite.contracts.launcher import Process
run([Process((sys.executable, "-c", {body!r}), rank=0)], 1, Path({str(folder)!r}), Limits(100, 100), print)
"""


@pytest.mark.parametrize("inside", [pytest.param((), id="on a host"), CONTAINED])
@pytest.mark.parametrize("killed", ["controller", "guard"])
def test_ranks_and_what_they_started_do_not_outlive(tmp_path, killed, inside):
    orphan, rank = ORPHANS["own session" if killed == "guard" else "a daemon's ways"], "open('up', 'w').close()"
    program = controller(tmp_path, f"import subprocess, time; {orphan}; {rank}; {FOREVER}")
    started = subprocess.Popen([*inside, sys.executable, "-c", program])
    wait_until(lambda: (tmp_path / "up").exists() and len(running_in(tmp_path)) == 3)
    parent = psutil.Process(started.pid)
    if inside:
        (parent,) = parent.children()
    (guard,) = parent.children()
    (guard if killed == "guard" else parent).kill()
    started.wait(120)
    wait_until(lambda: running_in(tmp_path) == [])


@pytest.mark.parametrize("inside", [CONTAINED])
def test_a_container_s_first_process_waits_for_what_it_is_handed(tmp_path, inside):
    """Of a guard that was killed, as for want of memory: the rank, and what the rank has started."""
    body = f"import os, subprocess, time; {ORPHANS['own session']}; os.kill(os.getppid(), 9); {FOREVER}"
    program = (
        controller(tmp_path, body)
        + """
import psutil
print([(child.name(), child.status()) for child in psutil.Process().children()])
"""
    )
    done = subprocess.run([*inside, sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout == "[]\n", done.stderr


def test_a_program_that_cannot_be_started_says_so(tmp_path, short_grace):
    result = attempt.run([Process(("no-such-mpiexec",))], 2, tmp_path, LIMITS, print)
    assert result.outcome == "crash"
    assert result.reason == (
        "no-such-mpiexec ended with exit code 127; "
        "its last lines: cannot start no-such-mpiexec: No such file or directory"
    )
    refused = Process((sys.executable, "-c", ""), {"TOO_LONG": "x" * (1 << 20)}, 1)
    result = attempt.run([rank(0, FOREVER), refused], 2, tmp_path, LIMITS, lambda rank, message: None)
    assert result.outcome == "crash"
    assert f"cannot start {sys.executable}: Argument list too long" in result.reason


def test_what_an_engine_said_is_not_taken_for_the_rank_s_words(tmp_path):
    """Open MPI's mpiexec says no more than this when it is told to end and does not."""
    said = "print('Abort is in progress', flush=True); open('engine.jsonl', 'w').write('{\"type\": \"begun\"}\\n')"
    engine = Process((sys.executable, "-c", f"import time; {said}; {FOREVER}"), queues=True)
    result = attempt.run([engine], 1, tmp_path, Limits(total_s=300, silence_s=1), lambda rank, message: None)
    said = re.escape(f"the last lines of {Path(sys.executable).name}: Abort is in progress")
    assert re.fullmatch(rf"rank 0 sent no message for 1 s \(silence limit\) before its first .*; {said}", result.reason)


def test_ranks_that_are_missing_or_leave_without_being_done_are_a_crash_though_every_exit_code_is_0(tmp_path):
    result = attempt.run([rank(0, DONE)], 2, tmp_path, LIMITS, lambda rank, message: None)
    assert result.outcome == "crash"
    assert "rank 1 of 2 never reported that it started" in result.reason
    result = run(tmp_path, "out.send(Phase('native'))", DONE)
    assert result.outcome == "crash"
    assert "rank 0 of 2 ended without being done" in result.reason


def test_a_half_written_line_waits_for_its_end_and_a_broken_one_is_passed_over(tmp_path):
    body = """
raw = open("rank-0.jsonl", "a")
raw.write('{"type": "no'); raw.flush(); time.sleep(0.4)
raw.write('tes", "notes": {}}\\nnot json\\n[1]\\n{"type": "phase", "name": 1}\\n{"type": "done"}\\n')
raw.write('[' * 100000 + '\\n')
raw.write('{"type": "never fin'); raw.flush()
"""
    result = run(tmp_path, body)
    assert [name_of(message) for message in result.messages[0]] == ["hello", "notes", "done"]
    assert result.outcome == "ok"
    assert result.evidence["unreadable_lines"] == 4


def test_what_an_earlier_attempt_left_is_not_taken_for_this_one_s(tmp_path):
    (tmp_path / "rank-0.jsonl").write_text('{"type": "hello"}\n{"type": "done"}\n')
    (tmp_path / "launcher-7.log").write_text("old")
    (tmp_path / "engine.jsonl").write_text('{"type": "engine failed", "kind": "oom", "message": "", "time_s": 1.0}\n')
    (tmp_path / "job.json").write_text("{}")
    result = attempt.run([Process((sys.executable, "-c", ""), rank=0)], 1, tmp_path, LIMITS, print)
    assert result.outcome == "crash"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.json", "launcher-0.log"]


def test_a_folder_that_cannot_be_written_is_named_with_its_remedy_and_one_that_is_gone_is_no_full_disk(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot prepare .*file/attempt: Not a directory; .* -o"):
        attempt.run([rank(0, DONE)], 1, tmp_path / "file" / "attempt", LIMITS, print)
    assert attempt.free(tmp_path / "none") == math.inf
    assert attempt.free(tmp_path) < math.inf


def test_a_disk_that_was_full_when_a_rank_ended_is_named_though_there_is_room_again(tmp_path, monkeypatch, short_grace):
    asked = []

    def free(folder):
        asked.append(folder)
        return 0.0 if len(asked) == 1 else 1e12

    monkeypatch.setattr(attempt, "free", free)
    result = run(tmp_path, "os._exit(1)", FOREVER)
    assert set(asked[1:]) == {tmp_path}, "and looked again, while the other rank was left"
    assert re.match(r"rank 0 ended with exit code 1\b", result.reason)
    assert result.reason.endswith(f"; the disk of {tmp_path} is full: free some space or name another folder with -o")


def test_the_disk_of_one_that_could_not_be_started_is_looked_at_before_what_is_left_has_been_ended(
    tmp_path, monkeypatch
):
    room, end = [0.0], Group.end

    def ended(group):
        room.append(1e12)
        end(group)

    monkeypatch.setattr(Group, "end", ended)
    monkeypatch.setattr(attempt, "free", lambda folder: room[-1])
    monkeypatch.setattr(processes, "guarded", lambda process: ["/none"])
    found = attempt.run([Process(("/none",), rank=0)], 1, tmp_path, LIMITS, print)
    assert found.reason.endswith(f"the disk of {tmp_path} is full: free some space or name another folder with -o")


def test_processes_get_no_input_no_broken_pipes_and_not_our_python_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere/of/ours")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "7")
    script = "echo $PYTHONPATH/$OMPI_COMM_WORLD_RANK/$OWN; cat; trap -p PIPE"
    attempt.run([Process(("bash", "-c", script), {"OWN": "1"}, 0)], 1, tmp_path, LIMITS, print)
    assert (tmp_path / "launcher-0.log").read_text() == "//1\n"
