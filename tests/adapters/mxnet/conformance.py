"""What the conformance suite is told of MXNet: what its `unsupported` refuses, and the words of the answer."""

refusals = [
    ({"knobs": {"servers": 2}}, "belongs to the dist_ strategies"),
    ({"strategy": "dist_sync", "knobs": {"servers": 0}}, "there is at least 1"),
    ({"precision": "float64", "knobs": {"lrn": "native"}}, "computes in float32"),
]
