"""Who gets the allocator's settings, and that glibc really takes them."""

import os
import subprocess
import sys

import pytest

from suite.contracts.allocator import KEEP_MEMORY, keep_memory
from suite.contracts.case import Case, Placement

CASE = Case("pytorch", "single", "mnist_small", tuning="tuned")

# Takes and drops 64 MiB again and again, and tells the page faults of the last times.
FAULTS = """
import resource
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print([faults() for _ in range(5)][-1])
"""


def test_only_tuned_cpu_processes_get_them():
    assert keep_memory(CASE) == KEEP_MEMORY
    assert keep_memory(CASE.on(tuning="default")) == {}
    assert keep_memory(CASE.on(placement=Placement(device="cuda"))) == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the variables are glibc's")
def test_a_block_that_was_dropped_is_not_faulted_in_again():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    usual, kept = (
        int(subprocess.run([sys.executable, "-c", FAULTS], env=env, capture_output=True, check=True).stdout)
        for env in (clean, {**clean, **KEEP_MEMORY})
    )
    assert kept < 100 < usual
