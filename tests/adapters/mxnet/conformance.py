"""What the conformance suite is told of MXNet: what its `unsupported` refuses, and the words of the answer."""

refusals = [
    ({"knobs": {"servers": 2}}, "belongs to the dist_ strategies"),
    ({"strategy": "dist_sync", "knobs": {"servers": 0}}, "there is at least 1"),
    ({"strategy": "kvstore_local", "knobs": {"compression": "2bit"}}, "'local' does not compress gradients"),
    ({"strategy": "dist_sync", "knobs": {"threshold": 0.1}}, "belongs to compression = '2bit'"),
    ({"precision": "float64", "knobs": {"lrn": "native"}}, "computes in float32"),
]
