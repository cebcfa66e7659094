"""The two ends of a login, without one: what keeps a far program alive, and what ends it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cluster import lifeline, remote
from suite.processes.interpreters import tox_folders

TELLS = "import os, sys, time; print(os.getpid(), flush=True);"
FOR_EVER = TELLS + "time.sleep(1000)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + FOR_EVER
# It starts one that leaves its session, and ends.
LEAVES = (
    f"import subprocess as s, sys; print(s.Popen([sys.executable, '-c', {FOR_EVER!r}], start_new_session=True).pid)"
)


def far(program, seconds="20", python=sys.executable):
    """remote.py with a program, its lifeline in our hands."""
    tokens = [str(python), "-I", "-S", "-B", remote.__file__, seconds, sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(tokens, **pipes)


def near(*tokens):
    """lifeline.py with a program in the login's place."""
    return subprocess.Popen([sys.executable, "-I", "-S", lifeline.__file__, "0.1", *tokens], stdout=subprocess.PIPE)


@pytest.fixture
def ended():
    """Ends, in the end, what a test started."""
    found = []
    yield lambda process: found.append(process) or process
    for process in found:
        with process:
            process.kill()


def pid_of(process):
    return int(process.stdout.readline())


def gone(pid, seconds=20):
    deadline = time.monotonic() + seconds
    while psutil.pid_exists(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(("code", "told"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 128 + 9)])
def test_the_program_s_end_is_told_as_a_shell_tells_it(ended, code, told):
    process = ended(far(TELLS + code))
    pid_of(process)
    assert process.wait(10) == told


def test_the_oldest_interpreter_does_the_same(ended):
    oldest = next((f / "worker-py36/bin/python" for f in tox_folders() if (f / "worker-py36").exists()), None)
    if oldest is None:
        pytest.skip("no environment worker-py36 (tox run -e worker-py36 makes it; STAGEBENCH_TOX_DIR says where)")
    process = ended(far(FOR_EVER, python=oldest))
    pid = pid_of(process)
    process.stdin.close()
    assert process.wait(20) == 128 + signal.SIGTERM
    assert gone(pid)
    ask = "import sys; sys.path.insert(0, sys.argv[1]); import remote; print(remote.interface('127.0.0.1'))"
    assert subprocess.check_output([oldest, "-c", ask, str(Path(remote.__file__).parent)]) == b"lo\n"


@pytest.mark.parametrize("program", [FOR_EVER, STUBBORN], ids=["polite", "stubborn"])
def test_a_login_that_closes_ends_the_program(ended, program):
    process = ended(far(program))
    pid = pid_of(process)
    process.stdin.close()
    assert process.wait(10) == 128 + (signal.SIGKILL if program is STUBBORN else signal.SIGTERM)
    assert gone(pid)


def test_a_login_that_falls_silent_ends_the_program_and_says_so(ended):
    process = ended(far(FOR_EVER, "2"))
    for _ in range(6):  # heard of in time, it goes on
        time.sleep(0.4)
        os.write(process.stdin.fileno(), b".")
    assert process.poll() is None
    assert process.wait(10) == 128 + signal.SIGTERM
    assert process.stderr.read() == b"ended: no sign of the controller came for 2 s\n"


def test_what_the_program_leaves_behind_is_ended_too(ended):
    process = ended(far(LEAVES))
    pid = pid_of(process)
    assert process.wait(10) == 0
    assert gone(pid)


def test_a_program_does_not_outlive_its_killed_guard(ended):
    process = ended(far(FOR_EVER))
    pid = pid_of(process)
    process.kill()
    assert gone(pid)


def test_a_program_that_is_not_there_is_named():
    tokens = [sys.executable, "-I", "-S", remote.__file__, "20", "/no/such/program"]
    done = subprocess.run(tokens, stdin=subprocess.PIPE, capture_output=True, text=True, timeout=10)
    assert (done.returncode, done.stderr) == (127, "cannot start /no/such/program: No such file or directory\n")


def test_gloo_is_told_an_interface_only_where_hosts_are_several_and_nobody_chose():
    assert remote.own_variables({"MASTER_ADDR": "127.0.0.1"}) == {}
    assert remote.own_variables({"MASTER_ADDR": "192.0.2.1", "GLOO_SOCKET_IFNAME": "ib0"}) == {}
    assert remote.interface("127.0.0.1") == "lo"


# --- the near end --------------------------------------------------------------


def test_it_beats_until_it_is_asked_to_end_then_waits_for_the_other_end(ended):
    reads = "import sys; print(sys.stdin.read(3), flush=True); sys.stdin.read(); print('closed', flush=True)"
    process = ended(near(sys.executable, "-c", reads))
    assert process.stdout.readline() == b"...\n"
    for one in (*psutil.Process(process.pid).children(), psutil.Process(process.pid)):
        one.terminate()  # as a group is ended: the login itself must outlive it
    assert process.wait(10) == 0
    assert process.stdout.read() == b"closed\n"


@pytest.mark.parametrize(("code", "ends"), [("exit 3", 3), ("exit 137", -9), ("exit 139", -11), ("kill -9 $$", -9)])
def test_it_ends_as_the_other_program_did(ended, code, ends):
    assert ended(near("sh", "-c", code)).wait(10) == ends


def test_both_ends_together_leave_nothing_when_the_near_one_is_killed(ended):
    guarded = [sys.executable, "-I", "-S", remote.__file__, "20", sys.executable, "-c", FOR_EVER]
    process = ended(near(*guarded))
    pid = pid_of(process)
    assert psutil.Process(pid).cmdline()[-1] == FOR_EVER
    process.kill()
    assert gone(pid)
