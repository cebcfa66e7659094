"""What the conformance suite is told of caffempi: what its `unsupported` refuses, and the words of the answer."""

refusals = [
    ({"strategy": "single", "knobs": {"node_ranks": 2}}, "changes nothing under 'single'"),
    ({"strategy": "two_level", "knobs": {"node_ranks": 0}}, "node_ranks is 0; a node has at least 1"),
]
