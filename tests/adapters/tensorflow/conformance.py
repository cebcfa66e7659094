"""What the conformance suite is told of TensorFlow: what its `unsupported` refuses, and the words of the answer."""

refusals = [
    ({"knobs": {"pack_mb": 4}}, "belongs to the strategy 'multiworker_mirrored'"),
    ({"strategy": "multiworker_mirrored", "knobs": {"pack_mb": 0}}, "a pack holds at least 1 MiB"),
    ({"strategy": "multiworker_mirrored", "knobs": {"collective": "nccl"}}, "NCCL exchanges between GPUs only"),
    ({"strategy": "mirrored", "knobs": {"cross_device": "hierarchical"}}, "forget the last of 1"),
    ({"strategy": "model_parallel", "knobs": {"microbatches": 0}}, "a batch has at least 1 piece"),
    ({"strategy": "parameter_server", "knobs": {"servers": 0}}, "there is at least 1"),
    ({"strategy": "coordinator", "knobs": {"xla": "update"}}, "under coordinator the servers update"),
    ({"knobs": {"layout": "NCHW"}}, "NCHW on a CPU needs xla = 'step'"),
]
