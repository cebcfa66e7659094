"""Who gets the allocator's settings, and that glibc really takes them."""

import os
import subprocess
import sys

import pytest

from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.contracts.kernels import KEEP_MEMORY, ONE_ARENA, keep_memory

CASE = Case("pytorch", "single", "mnist_small", tuning="tuned")

# Takes and drops 96 MiB again and again, in another thread on demand, and tells the page faults of the last time.
FAULTS = """
import resource, sys, threading
found = []
def faults():
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        bytearray(96 << 20)
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
if sys.argv[1] == "first":
    faults()
else:
    other = threading.Thread(target=faults)
    other.start()
    other.join()
print(found[-1])
"""


def test_only_tuned_cpu_processes_get_them():
    assert keep_memory(CASE) == KEEP_MEMORY
    assert keep_memory(CASE, other_threads=True) == {**KEEP_MEMORY, **ONE_ARENA}
    assert keep_memory(CASE.on(tuning="default")) == {}
    assert keep_memory(CASE.on(placement=Placement(device="cuda"))) == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the variables are glibc's")
@pytest.mark.parametrize(("thread", "enough"), [("first", KEEP_MEMORY), ("other", {**KEEP_MEMORY, **ONE_ARENA})])
def test_a_block_that_was_dropped_is_not_faulted_in_again(thread, enough):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", FAULTS, thread]
    usual, kept = (
        int(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
        for env in ({**clean, **({} if thread == "first" else KEEP_MEMORY)}, {**clean, **enough})
    )
    assert kept < 100 < usual
