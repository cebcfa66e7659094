"""What the conformance suite expects of JAX: what its `unsupported` refuses, and the words of the answer."""

refusals = [({"knobs": {"preallocate": 0.5}}, "preallocates a GPU's memory, none of a CPU's")]
