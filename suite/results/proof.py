"""A proof as the run folder and the cache keep it; `suite.proofs` makes them, docs/record-format.md explains them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suite.results.stored import FORMAT, FileName, Finite, Format, Kept, Stored, intact, sealed
from suite.worker.messages import Memory, ProofLosses


class Finding(Stored):
    """One error of a proof and its bound."""

    what: str
    tensor: str
    error: float  # 1e300 if it is not finite
    tolerance: float


class Environment(Stored):
    """The variables that change what is computed, as ranks of a proof found them."""

    values: dict[str, str]  # without home folders
    digest: str  # of the values as they were


class Verdict(Stored):
    """The result of one comparison with the oracle; a proof that could not be run has not passed."""

    passed: bool
    reason: str = ""
    outcome: str | None = None  # the failed run's; None if it did not fail
    worst: Finding | None = None  # the error nearest to its bound, or farthest beyond it
    losses: Kept[ProofLosses] | None = None  # the mean over ranks
    errors: Mapping[str, Mapping[str, Finite]] = {}  # relative, by kind and tensor; null: not finite
    parameter_count: int | None = None
    macs: int | None = None  # multiply-accumulates of one sample's forward pass
    graph: str = ""  # the digest of the layer graph
    weights: str = ""  # the digest of the initial weights
    versions: dict[str, str] = {}  # as one rank reported them
    processors: tuple[str, ...] = ()  # models of the CPUs and GPUs that the ranks ran on
    environments: tuple[Environment, ...] = ()  # the ranks', each once
    memory: tuple[Kept[Memory], ...] = ()  # the ranks'
    tolerance: dict[str, float] = {}  # the bounds
    looser_because: str = ""  # the reason of bounds that are looser than usual


class Identity(Stored):
    """A summary of the verdict in float64."""

    passed: bool
    reason: str = ""
    worst: Finding | None = None
    losses: Kept[ProofLosses] | None = None  # the mean over ranks


class Subject(Stored):
    """The configuration that is proven."""

    adapter: str
    strategy: str
    workload: str
    ranks: int
    devices: int = 1  # per rank
    device: str = "cpu"
    precision: str
    tuning: str
    optimiser: str = "sgd"
    knobs: dict[str, Any]


class Proof(Subject, Verdict):
    """proofs/KEY.json: the evidence that an adapter trains the workload."""

    format: Format = FORMAT
    key: FileName | None  # None: it could not be made, and is stored nowhere
    scope: str = ""  # the part of the case that is not proven, in words; "": none
    identity: Identity | None = None  # None: the adapter has no float64, or was proven in it
    digest: str = ""  # of the file's text with "" here

    @property
    def text(self) -> str:
        """The text of its file, with its digest."""
        return sealed(self.but(digest="").model_dump_json(indent=1) + "\n")

    def misfit(self, path: Path, text: bytes) -> str | None:
        """Return why a file, with this text, is not the proof that its name promises; None if it is."""
        if self.key != path.stem:
            return f"it holds the proof {self.key}, and its name is another one's"
        return None if intact(text, self.digest) else "it was changed after it was written"
