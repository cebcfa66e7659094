"""What the conformance suite expects of MXNet: what its `unsupported` refuses, and the words of the answer."""

fresh_sidecars = True  # importing mxnet is what serves
refusals = [
    ({"knobs": {"servers": 2}}, "belongs to the strategy 'dist_sync'"),
    ({"strategy": "dist_sync", "knobs": {"servers": 0}}, "the least is 1"),
    ({"strategy": "kvstore_local", "knobs": {"compression": "2bit"}}, "changes nothing under 'kvstore_local'"),
    ({"strategy": "dist_sync", "knobs": {"threshold": 0.1}}, "threshold = 0.1 needs compression = '2bit'"),
    ({"precision": "float64", "knobs": {"lrn": "native"}}, "MXNet's own LRN computes in no other"),
]
