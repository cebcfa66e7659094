"""What the conformance suite is told of PyTorch: what its `unsupported` refuses, and the words of the answer."""

from stagebench.suite.contracts.case import Placement

refusals = [
    ({"strategy": "dp"}, "it would run the whole batch on one, unsplit and without a word"),
    ({"strategy": "ddp", "knobs": {"compression": "bf16"}}, "over NCCL alone"),
    ({"strategy": "pipeline"}, "pipeline holds one network on several ranks; ask for two ranks"),
    (
        {"strategy": "branch_parallel", "placement": Placement(ranks_per_node=2)},
        "has no block with a branch",
    ),
    ({"strategy": "accumulate", "batch": 3, "knobs": {"microbatches": 2}}, "does not divide into microbatches = 2"),
]
