"""What the conformance suite is told of the reference: what its `unsupported` refuses, and the words of the answer."""

refusals = [({"batch": 3, "knobs": {"shards": 2}}, "a batch of 3 does not divide into shards = 2")]
