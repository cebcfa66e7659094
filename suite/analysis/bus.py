"""Bus bandwidth: what an operation asks of the slowest wire, whatever the number of ranks.

Algorithm bandwidth (bytes / time) of an all-reduce falls as ranks are added, though the
wires are as fast as before. The factors are those of nccl-tests:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""


def factor(operation: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth; ValueError for an operation that has none."""
    if operation in ("broadcast", "point-to-point"):
        return 1.0
    if operation == "all-reduce":
        return 2.0 * (ranks - 1) / ranks
    if operation in ("reduce-scatter", "all-gather"):
        return (ranks - 1) / ranks
    raise ValueError(f"no bus factor is known for {operation!r}")
