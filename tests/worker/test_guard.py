"""The guard behind a lifeline, and the near end of it, without a login between them. Runs on Python 3.6, too."""

import os
import signal
import subprocess
import sys
import time

import pytest

from suite.worker import guard

TELLS = "import os, sys, time; print(os.getpid(), flush=True);"
FOR_EVER = TELLS + "time.sleep(1000)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + FOR_EVER
# It starts one that leaves its session, and ends.
LEAVES = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', %r], start_new_session=True).pid)"
LEAVES %= FOR_EVER
SCRIPT = [sys.executable, "-I", "-S", "-B", guard.__file__]


def far_end(program, seconds="20"):
    """A guard and its program, with the lifeline in our hands."""
    tokens = [*SCRIPT, "--lifeline=" + seconds, "--patience=1", "--left=1", sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(tokens, **pipes)


def near_end(*tokens):
    """The near end with a program in the login's place."""
    return subprocess.Popen([*SCRIPT, "--login=0.1", *tokens], stdout=subprocess.PIPE)


@pytest.fixture
def ended():
    """Ends, in the end, what a test started."""
    processes = []
    yield lambda process: processes.append(process) or process
    for process in processes:
        with process:
            process.kill()


def pid_of(process):
    return int(process.stdout.readline())


def gone(pid, seconds=20):
    deadline = time.monotonic() + seconds
    while os.path.exists("/proc/%d" % pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return True


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as stream:
        return list(map(int, stream.read().split()))


@pytest.mark.parametrize(("end", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 128 + 9)])
def test_the_program_s_end_becomes_a_shell_s_exit_code(ended, end, code):
    process = ended(far_end(TELLS + end))
    pid_of(process)
    assert process.wait(10) == code


def test_a_parent_that_ignores_its_children_s_ends_hides_none(ended):
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # lasts through exec
    try:
        process = ended(far_end(TELLS + "sys.exit(7)"))
    finally:
        signal.signal(signal.SIGCHLD, previous)
    pid_of(process)
    assert process.wait(10) == 7


@pytest.mark.parametrize("program", [FOR_EVER, STUBBORN], ids=["polite", "stubborn"])
def test_a_lifeline_that_closes_ends_the_program(ended, program):
    process = ended(far_end(program))
    pid = pid_of(process)
    process.stdin.close()
    assert process.wait(10) == 128 + (signal.SIGKILL if program is STUBBORN else signal.SIGTERM)
    assert gone(pid)


def test_a_lifeline_that_falls_silent_ends_the_program_with_a_message(ended):
    process = ended(far_end(FOR_EVER, "2"))
    for _ in range(6):  # signs of life in time
        time.sleep(0.4)
        os.write(process.stdin.fileno(), b".")
    assert process.poll() is None
    assert process.wait(10) == 128 + signal.SIGTERM
    assert process.stderr.read() == b"ended: no sign of the controller came for 2 s\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_guard_ends_the_program(ended, number):
    process = ended(far_end(FOR_EVER))
    pid = pid_of(process)
    process.send_signal(number)
    assert process.wait(10) == 128 + signal.SIGTERM
    assert gone(pid)


def test_a_program_that_answers_such_a_signal_with_0_does_not_pass_for_one_that_was_done(ended):
    process = ended(far_end("import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));" + FOR_EVER))
    pid_of(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 128 + signal.SIGTERM


def test_the_lifeline_is_not_the_program_s_input(ended):
    process = ended(far_end("print(repr(open(0).read()))"))
    assert process.stdout.readline() == b"''\n"
    assert process.wait(10) == 0


def test_what_the_program_leaves_behind_is_ended_too(ended):
    process = ended(far_end(LEAVES))
    pid = pid_of(process)
    assert process.wait(10) == 0
    assert gone(pid)


def test_a_program_does_not_outlive_its_killed_guard(ended):
    process = ended(far_end(FOR_EVER))
    pid = pid_of(process)
    process.kill()
    assert gone(pid)


def test_a_program_that_does_not_exist_is_named(ended):
    tokens = [*SCRIPT, "--lifeline=20", "--patience=1", "--left=1", "/no/such/program"]
    process = ended(subprocess.Popen(tokens, stdin=subprocess.PIPE, stderr=subprocess.PIPE))
    assert process.wait(10) == 127
    assert process.stderr.read() == b"cannot start /no/such/program: No such file or directory\n"


# --- the near end --------------------------------------------------------------


def test_it_gives_signs_of_life_until_it_is_asked_to_end_then_waits_for_the_login(ended):
    reads = "import sys; print(sys.stdin.read(3), flush=True); sys.stdin.read(); print('closed', flush=True)"
    process = ended(near_end(sys.executable, "-c", reads))
    assert process.stdout.readline() == b"...\n"
    for pid in (*children_of(process.pid), process.pid):
        os.kill(pid, signal.SIGTERM)  # as a group is ended: the login itself must outlive it
    assert process.wait(10) == 0
    assert process.stdout.read() == b"closed\n"


@pytest.mark.parametrize(("code", "ends"), [("exit 3", 3), ("exit 137", -9), ("exit 139", -11), ("kill -9 $$", -9)])
def test_it_ends_as_the_other_program_did(ended, code, ends):
    assert ended(near_end("sh", "-c", code)).wait(10) == ends


def test_both_ends_together_leave_nothing_when_the_near_one_is_killed(ended):
    far = [*SCRIPT, "--lifeline=20", "--patience=1", "--left=1", sys.executable, "-c", FOR_EVER]
    process = ended(near_end(*far))
    pid = pid_of(process)
    process.kill()
    assert gone(pid)
