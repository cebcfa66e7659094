"""A straggler's load: real processes on its cores, above it in priority, gone when they must be."""

import os
import subprocess
import sys
import time

import pytest

from stagebench.suite.worker import messages
from stagebench.suite.worker.load import Load, above

GIVE_UP = 120.0  # seconds


def children():
    with open("/proc/self/task/%d/children" % os.getpid()) as stream:
        return [int(each) for each in stream.read().split()]


def test_a_load_runs_on_the_cores_and_takes_no_more_than_its_share():
    core, before = min(os.sched_getaffinity(0)), set(children())
    load = Load(0.6, [core])
    began = set(children()) - before
    limit = time.monotonic() + GIVE_UP
    while time.clock_gettime((~min(began) << 3) | 2) < 1.0 and time.monotonic() < limit:  # its processor time
        time.sleep(0.05)
    places = [os.sched_getaffinity(each) for each in began]
    found = load.end()
    assert places == [{core}]
    assert found["asked"] == 0.6
    assert 0.0 < found["taken"] < 0.8, "its start counts, too"
    assert not set(children()) & began


@pytest.mark.parametrize(("share", "levels"), [(0.1, 1), (0.5, 1), (0.75, 6), (0.95, 15)])
def test_levels_give_the_share_and_little_more(share, levels):
    assert above(share) == levels
    weight = 1.25 ** (levels - 1)
    assert weight / (weight + 1) >= share - 1e-9


BESIDE = """
import os, threading
from stagebench.suite.worker.load import Load
held = threading.Event()
threading.Thread(target=held.wait, daemon=True).start()
%s
load = Load(0.75, [%d])
ranks = [os.getpriority(os.PRIO_PROCESS, int(each)) for each in os.listdir("/proc/self/task")]
print(os.getpriority(os.PRIO_PROCESS, load._processes[0].pid), min(ranks), max(ranks))
load.end()
"""
REFUSED = """
allowed = os.setpriority
def setpriority(which, who, nice):
    if nice < os.getpriority(which, who):
        raise PermissionError(1, "as where one is not root")
    allowed(which, who, nice)
os.setpriority = setpriority
"""


@pytest.mark.parametrize("refused", ["", REFUSED])
def test_a_load_stands_above_every_thread_of_its_rank(refused):
    program = BESIDE % (refused, min(os.sched_getaffinity(0)))
    load, *ranks = map(int, subprocess.check_output([sys.executable, "-c", program]).split())
    assert [rank - load for rank in ranks] == [above(0.75)] * 2


def test_a_load_ends_with_its_rank():
    program = "import os; from stagebench.suite.worker.load import Load; load = Load(0.5, [%d]); "
    program += "print(load._processes[0].pid); "
    program = program % min(os.sched_getaffinity(0)) + "import sys; sys.stdout.flush(); os._exit(1)"
    pid = int(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False).stdout)
    limit = time.monotonic() + GIVE_UP
    while os.path.exists("/proc/%d/stat" % pid) and time.monotonic() < limit:
        with open("/proc/%d/stat" % pid) as stream:
            if stream.read().split()[2] == "Z":  # nobody reaps it in a container
                break
        time.sleep(0.01)
    assert time.monotonic() < limit


def test_the_last_rank_s_record_says_what_was_taken(make_job, work):
    _, found = work(make_job(trainer="toy:ToyTrainer", straggler=0.5))
    (straggler,) = [
        note.notes["straggler"] for note in found if isinstance(note, messages.Notes) and "straggler" in note.notes
    ]
    assert straggler["asked"] == 0.5
