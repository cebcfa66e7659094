"""What the conformance suite is told of Horovod over any engine: what it refuses, and the words of the answer."""

refusals = [
    ({"knobs": {"controller": "mpi"}}, "know of no MPI"),
    ({"knobs": {"fusion_threshold_mb": -1}}, "a size, at least 0"),
    ({"knobs": {"cycle_time_ms": 0}}, "a time, above 0"),
]
