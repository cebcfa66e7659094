"""Bus bandwidth: algorithm bandwidth (bytes / time) made comparable over numbers of ranks.

Algorithm bandwidth of an all-reduce falls as ranks are added, though the wires are as
fast as before. The factors are those of nccl-tests: what the least traffic between ranks
that are all alike asks of each one's wire.
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
Over servers (MXNet's key-value store) every number crosses a rank's wire once each way,
and all of them meet at the servers: there it is the same convention, and no wire's speed.
"""


def factor(operation: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth; ValueError for an operation that has none."""
    if operation in ("broadcast", "point-to-point"):
        return 1.0
    if operation == "all-reduce":
        return 2.0 * (ranks - 1) / ranks
    if operation in ("reduce-scatter", "all-gather", "all-to-all"):
        return (ranks - 1) / ranks
    raise ValueError(f"no bus factor is known for {operation!r}")
