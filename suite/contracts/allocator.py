"""What a tuned CPU process asks of the C library's allocator; it is read once, when a process starts."""

from suite.contracts.case import Configuration

# glibc gives large blocks back to the kernel and faults them in again at every step: keep
# them. PyTorch, AlexNet, batch 8, one thread: 60,000 page faults a step fall to none, and
# the step from 0.40 s to 0.28 s. Values are bytes; other C libraries ignore them.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(32 << 30),
}

# Threads but the first have heaps of 64 MiB, and give back what is larger all the same: one heap for all. JAX, whose
# steps run in a thread of XLA, AlexNet, batch 8: 105,000 page faults a step fall to none, 0.57 s of CPU to 0.38 s.
# Which heap a thread of MXNet's engine gets is luck: AlexNet's step took 0.52 s in some processes, 0.55 s in others.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


def keep_memory(case: Configuration, other_threads: bool = False) -> dict[str, str]:
    """The variables for a case's processes: none in `default` tuning, and none where tensors lie on a GPU.

    `other_threads`: large blocks are taken by others than the process's first thread.
    """
    if case.tuning != "tuned" or case.placement.device != "cpu":
        return {}
    return {**KEEP_MEMORY, **(ONE_ARENA if other_threads else {})}
