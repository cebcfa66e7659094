"""What the conformance suite expects of Horovod over any engine: what it refuses, and the words of the answer."""

refusals = [
    ({"knobs": {"controller": "mpi"}}, "know of no MPI"),
    ({"knobs": {"fusion_threshold_mb": -1}}, "the least is 0"),
    ({"knobs": {"cycle_time_ms": 0}}, "the least is 0.001"),
]
