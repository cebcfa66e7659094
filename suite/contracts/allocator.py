"""What a tuned CPU process asks of the C library's allocator; it is read once, when a process starts."""

from suite.contracts.case import Configuration

# glibc gives large blocks back to the kernel and faults them in again at every step: keep
# them. PyTorch, AlexNet, batch 8, one thread: 60,000 page faults a step fall to none, and
# the step from 0.40 s to 0.28 s. Values are bytes; other C libraries ignore them.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(32 << 30),
}


def keep_memory(case: Configuration) -> dict[str, str]:
    """The variables for a case's processes: none in `default` tuning, and none where tensors lie on a GPU."""
    return dict(KEEP_MEMORY) if case.tuning == "tuned" and case.placement.device == "cpu" else {}
