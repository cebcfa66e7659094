"""A proof as the run folder and the cache keep it; `suite.proofs` makes them, docs/record-format.md explains them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from suite.results.rank_report import Memory
from suite.results.records import FORMAT
from suite.results.stored import FileName, Finite, Stored, intact, sealed

SEALED = 5  # the method from which a proof has a digest


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


class Environment(Stored):
    """The variables that change what is computed, as ranks of a proof found them."""

    values: dict[str, str]  # without home folders
    digest: str  # of the true values


class Verdict(Stored):
    """What came of one run beside the oracle; one that could not be run has not passed."""

    passed: bool
    reason: str = ""
    outcome: str | None = None  # of a run that failed
    worst: Finding | None = None  # the error nearest to its bound, or farthest beyond it
    losses: ProofLosses | None = None
    errors: Mapping[str, Mapping[str, Finite]] = {}  # relative, by kind and tensor; null: not finite
    parameter_count: int | None = None
    macs: int | None = None  # multiply-accumulates of one sample's forward pass
    graph: str = ""  # digests
    weights: str = ""
    versions: dict[str, str] = {}
    processors: tuple[str, ...] = ()  # models of the CPUs and GPUs that the ranks ran on; () before they were kept
    environments: tuple[Environment, ...] = ()  # of the ranks, each once; () before they were kept
    memory: tuple[Memory, ...] = ()  # of each rank; () before it was kept
    tolerance: dict[str, float] = {}
    looser_because: str = ""


class Identity(Stored):
    """The verdict in float64, in short."""

    passed: bool
    reason: str = ""
    worst: Finding | None = None
    losses: ProofLosses | None = None


class Subject(Stored):
    """What is proven."""

    adapter: str
    strategy: str
    workload: str
    ranks: int
    devices: int = 1  # of each rank
    device: str = "cpu"
    precision: str
    tuning: str
    optimiser: str = "sgd"
    knobs: dict[str, Any]


class Proof(Subject, Verdict):
    """proofs/KEY.json: the evidence that an adapter trains the workload."""

    format: Literal[4] = FORMAT
    key: FileName | None  # None: it could not be made, and is stored nowhere
    scope: str = ""  # what it leaves open
    identity: Identity | None = None  # None: the adapter has no float64, or was proven in it
    digest: str = ""  # of the file, without this; "": before method 5

    @property
    def text(self) -> str:
        """What its file holds."""
        return sealed(self.but(digest="").model_dump_json(indent=1) + "\n")

    def misfit(self, path: Path, text: bytes, has_digest: bool = True) -> str | None:
        """Why it is not what this place is to hold; None when it is. `text` is the file's.

        `has_digest`: whether it has one whatever it says, as those of runs since method `SEALED` have.
        """
        if self.key != path.stem:
            return f"it holds the proof {self.key}, and its name is another one's"
        unsealed = not (has_digest or self.digest)
        return None if unsealed or intact(text, self.digest) else "it was changed after it was written"
