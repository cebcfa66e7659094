"""What the conformance suite is told of caffempi: what its `unsupported` refuses, and the words of the answer."""

from suite.contracts.case import Placement

TWO_RANKS = Placement(launcher="mpiexec", ranks_per_node=2)

refusals = [
    ({"strategy": "single", "knobs": {"node_ranks": 2}}, "changes nothing under 'single'"),
    ({"strategy": "single", "knobs": {"overlap": "none"}}, "'overlap' belongs to the strategies that exchange"),
    ({"strategy": "single", "knobs": {"progress": "thread"}}, "'progress' belongs to the strategies that exchange"),
    (
        {"strategy": "two_level", "placement": TWO_RANKS, "knobs": {"node_ranks": 0}},
        "node_ranks is 0; a node has at least 1",
    ),
]
