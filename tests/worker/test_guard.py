"""The guard behind a lifeline, and the near end of it, without a login between them. Runs on Python 3.6, too."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from stagebench.suite.worker import guard

TELLS = "import os, sys, time; print(os.getpid(), flush=True);"
FOR_EVER = TELLS + "time.sleep(1000)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + FOR_EVER
# It starts one that leaves its session, and ends.
LEAVES = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', %r], start_new_session=True).pid)"
LEAVES %= FOR_EVER
SCRIPT = [sys.executable, "-I", "-S", "-B", guard.__file__]
FAR = [*SCRIPT, "--lifeline=300", "--patience=1", "--left=1"]


@pytest.fixture
def ended():
    """Ends, in the end, what a test started."""
    with ExitStack() as ends:

        def running(process):
            ends.enter_context(process)
            ends.callback(process.kill)
            return process

        yield running


@pytest.fixture
def far_end(ended):
    """A function that starts a guard and its program, with the lifeline in our hands."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return lambda program, far=FAR: ended(subprocess.Popen([*far, sys.executable, "-c", program], **pipes))


@pytest.fixture
def near_end(ended):
    """A function that starts the near end with a program in the login's place."""
    return lambda *tokens: ended(subprocess.Popen([*SCRIPT, "--login=0.1", *tokens], stdout=subprocess.PIPE))


def pid_of(process):
    return int(process.stdout.readline())


def gone(pid, seconds=120):
    deadline = time.monotonic() + seconds
    while runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return True


def runs(pid):
    """Whether a process is there, and more than unreaped: in a container there may be nobody who reaps."""
    try:
        with open("/proc/%d/stat" % pid) as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as stream:
        return list(map(int, stream.read().split()))


@pytest.mark.parametrize(("end", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 128 + 9)])
@pytest.mark.parametrize("ignored", [False, True], ids=["", "its parent ignores its children's ends"])
def test_the_program_s_end_becomes_a_shell_s_exit_code(far_end, end, code, ignored):
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN if ignored else signal.SIG_DFL)  # lasts through exec
    try:
        process = far_end(TELLS + end)
    finally:
        signal.signal(signal.SIGCHLD, previous)
    pid_of(process)
    assert process.wait(120) == code


@pytest.mark.parametrize("program", [FOR_EVER, STUBBORN], ids=["polite", "stubborn"])
def test_a_lifeline_that_closes_ends_the_program(far_end, program):
    process = far_end(program)
    pid = pid_of(process)
    process.stdin.close()
    assert process.wait(120) == 128 + (signal.SIGKILL if program is STUBBORN else signal.SIGTERM)
    assert gone(pid)


def test_a_lifeline_that_falls_silent_ends_the_program_with_a_message(far_end):
    process = far_end(FOR_EVER, [*FAR, "--lifeline=4"])
    for _ in range(5):  # signs of life in time
        time.sleep(1.0)
        os.write(process.stdin.fileno(), b".")
    assert process.poll() is None
    assert process.wait(120) == 128 + signal.SIGTERM
    assert process.stderr.read() == b"ended: no sign of the controller came for 4 s\n"


@pytest.mark.parametrize("answer", ["", "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_guard_ends_the_program_which_does_not_pass_for_one_that_was_done(far_end, number, answer):
    process = far_end("import sys;" + answer + FOR_EVER)
    pid = pid_of(process)
    process.send_signal(number)
    assert process.wait(120) == 128 + (number if answer else signal.SIGTERM)
    assert gone(pid)


def test_the_lifeline_is_not_the_program_s_input(far_end):
    process = far_end("print(repr(open(0).read()))")
    assert process.stdout.readline() == b"''\n"
    assert process.wait(120) == 0


def test_what_the_program_leaves_behind_is_ended_and_it_does_not_outlive_its_killed_guard(far_end):
    process = far_end(LEAVES)
    pid = pid_of(process)
    assert process.wait(120) == 0
    assert gone(pid)
    process = far_end(FOR_EVER)
    pid = pid_of(process)
    process.kill()
    assert gone(pid)


def test_a_program_that_does_not_exist_is_named(ended):
    process = ended(subprocess.Popen([*FAR, "/no/such/program"], stdin=subprocess.PIPE, stderr=subprocess.PIPE))
    assert process.wait(120) == 127
    assert process.stderr.read() == b"cannot start /no/such/program: No such file or directory\n"


# --- the near end --------------------------------------------------------------


def test_it_gives_signs_of_life_until_it_is_asked_to_end_then_waits_for_the_login(near_end):
    reads = "import sys; print(sys.stdin.read(3), flush=True); sys.stdin.read(); print('closed', flush=True)"
    process = near_end(sys.executable, "-c", reads)
    assert process.stdout.readline() == b"...\n"
    for pid in (*children_of(process.pid), process.pid):
        os.kill(pid, signal.SIGTERM)  # as a group is ended: the login itself must outlive it
    assert process.wait(120) == 0
    assert process.stdout.read() == b"closed\n"


@pytest.mark.parametrize(("code", "ends"), [("exit 3", 3), ("exit 137", -9), ("exit 139", -11), ("kill -9 $$", -9)])
def test_it_ends_as_the_other_program_did(near_end, code, ends):
    assert near_end("sh", "-c", code).wait(120) == ends


def test_both_ends_together_leave_nothing_when_the_near_one_is_killed(near_end):
    process = near_end(*FAR, sys.executable, "-c", FOR_EVER)
    pid = pid_of(process)
    process.kill()
    assert gone(pid)
