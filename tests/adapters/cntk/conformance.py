"""What the conformance suite is told of CNTK: what its `unsupported` refuses, and the words of the answer."""

from suite.contracts.case import Placement

MPI = Placement(launcher="mpiexec")

refusals = [
    ({"strategy": "single", "knobs": {"block_steps": 5}}, "belongs to the strategy 'block_momentum'"),
    ({"strategy": "block_momentum", "placement": MPI, "knobs": {"block_steps": 0}}, "a block holds at least 1 step"),
]
