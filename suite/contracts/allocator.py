"""The C library allocator's variables for tuned CPU processes, which read them once, when they start."""

from suite.contracts.case import Configuration

# glibc gives large blocks back to the kernel and faults them in again at every step: keep
# them. PyTorch, AlexNet, batch 8, one thread: 60,000 page faults a step fall to none, and
# the step from 0.40 s to 0.28 s. Values are bytes; other C libraries ignore them.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(32 << 30),
}

# All threads but the first have heaps of 64 MiB, and return larger blocks in spite of KEEP_MEMORY: make one heap for
# all. JAX, whose steps run in a thread of XLA, AlexNet, batch 8: 105,000 page faults a step fall to none, 0.57 s of CPU
# to 0.38 s. The heap of an MXNet engine's thread is chance: AlexNet's step took 0.52 s or 0.55 s, by process.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


def keep_memory(case: Configuration, other_threads: bool = False) -> dict[str, str]:
    """Return the variables for a case's processes, for use in `Adapter.environ`: none unless it is tuned and on CPUs.

    `other_threads`: threads other than the process's first one allocate large blocks.
    """
    if case.tuning != "tuned" or case.placement.device != "cpu":
        return {}
    return {**KEEP_MEMORY, **(ONE_ARENA if other_threads else {})}
