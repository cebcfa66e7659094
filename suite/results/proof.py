"""A proof as the run folder and the cache keep it; `suite.proofs` makes them, docs/record-format.md explains them."""

from typing import Any, Literal

from suite.results.records import FORMAT
from suite.results.stored import Finite, Stored


class Finding(Stored):
    """One error of a proof beside its bound."""

    what: str
    tensor: str
    error: float  # 1e300 for one that is not finite
    tolerance: float


class ProofLosses(Stored):
    """The losses of the proof's iterations, the mean over ranks."""

    staged: tuple[Finite, ...]
    native: tuple[Finite, ...]
    oracle: tuple[Finite, ...]


class Identity(Stored):
    """The same proof in float64."""

    passed: bool
    reason: str = ""
    worst: Finding | None = None
    losses: ProofLosses | None = None


class Proof(Stored):
    """proofs/KEY.json: the evidence that an adapter trains the workload; one that could not be run has not passed."""

    format: Literal[2] = FORMAT
    key: str | None  # None: it could not be made, and is stored nowhere
    adapter: str
    strategy: str
    workload: str
    ranks: int
    devices: int = 1
    device: str = "cpu"
    precision: str
    tuning: str
    optimiser: str = "sgd"
    knobs: dict[str, Any]
    scope: str = ""  # what it leaves open
    passed: bool
    reason: str = ""
    outcome: str | None = None  # of a proof that could not be run
    worst: Finding | None = None
    losses: ProofLosses | None = None
    errors: dict[str, dict[str, Finite]] = {}  # relative, by kind and tensor; null: not finite
    parameter_count: int | None = None
    macs: int | None = None  # multiply-accumulates of one sample's forward pass
    graph: str = ""  # digests
    weights: str = ""
    versions: dict[str, str] = {}
    tolerance: dict[str, float] = {}
    looser_because: str = ""
    identity: Identity | None = None
