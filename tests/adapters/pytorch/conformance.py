"""What the conformance suite is told of PyTorch: what its `unsupported` refuses, and the words of the answer."""

from suite.contracts.case import Placement

TWO_GPUS = Placement(device="cuda", devices=2)

refusals = [
    ({"strategy": "single", "knobs": {"static_graph": True}}, "belongs to the strategy 'ddp'"),
    ({"strategy": "dp"}, "it would run the whole batch on one, unsplit and without a word"),
    (
        {"strategy": "dp", "placement": TWO_GPUS, "knobs": {"compile": True}},
        "which a compiled one does not allow",
    ),
    ({"strategy": "ddp", "knobs": {"bucket_cap_mb": 0}}, "bucket_cap_mb is 0, and the least is 1"),
    ({"strategy": "ddp", "knobs": {"compression": "bf16"}}, "over NCCL alone"),
    ({"strategy": "pipeline"}, "a pipeline of one rank has nobody to hand on to"),
    ({"strategy": "accumulate", "batch": 3, "knobs": {"microbatches": 2}}, "does not divide into microbatches = 2"),
]
