"""What the conformance suite is told of PyTorch: what its `unsupported` refuses, and the words of the answer."""

refusals = [
    ({"strategy": "dp"}, "it would run the whole batch on one, unsplit and without a word"),
    ({"strategy": "ddp", "knobs": {"compression": "bf16"}}, "over NCCL alone"),
    ({"strategy": "pipeline"}, "a pipeline of one rank has nobody to hand on to"),
    ({"strategy": "accumulate", "batch": 3, "knobs": {"microbatches": 2}}, "does not divide into microbatches = 2"),
]
