"""What the conformance suite is told of TensorFlow: what its `unsupported` refuses, and the words of the answer."""

refusals = [
    ({"strategy": "multiworker_mirrored", "knobs": {"collective": "nccl"}}, "NCCL exchanges between GPUs only"),
    ({"strategy": "mirrored", "knobs": {"cross_device": "hierarchical"}}, "forget the last of 1"),
    ({"strategy": "model_parallel", "batch": 4, "knobs": {"microbatches": 3}}, "does not divide into microbatches"),
    ({"strategy": "coordinator", "knobs": {"xla": "update"}}, "the servers update, by TensorFlow's own kernels"),
    ({"knobs": {"layout": "NCHW"}}, "NCHW on a CPU needs xla = 'step'"),
]
