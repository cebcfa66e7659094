"""The oracle's float64 results, and what rounding alone does to them, in the cache: made once, used only if unchanged.

With a missing file, a proof would pass that compared less; with a changed file, the adapter would be blamed. So each
folder holds the digests of its files, which are checked before it is used.
"""

import contextlib
import hashlib
import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Configuration
from stagebench.suite.errors import StagebenchError, StoreError
from stagebench.suite.files import cache_folder, write_whole
from stagebench.suite.plugin_errors import ask
from stagebench.suite.plugins import oracle
from stagebench.suite.processes import bundle
from stagebench.suite.processes.attempt import Attempt, Limits
from stagebench.suite.processes.interpreters import find
from stagebench.suite.processes.launch import Launch
from stagebench.suite.processes.single import plain, single
from stagebench.suite.proofs.tolerances import Tolerance, distances
from stagebench.suite.results.stored import SMALL, object_of, text_of
from stagebench.suite.worker.job import MakeOracle, Prove, Task
from stagebench.suite.worker.machine import cores
from stagebench.suite.worker.messages import Proof, of_type

PATIENCE, LIMIT = 1800.0, 6 * 3600.0  # seconds without a sign of life, and for all of an oracle
DIGESTS = "digests.json"  # the digest of every other file
# The fields of a configuration that decide an update.
UPDATE = ("optimiser", "lr", "momentum", "beta1", "beta2", "epsilon", "weight_decay", "clip_norm", "schedule")


class Oracles:
    """Makes oracles, or finds them in the cache."""

    def __init__(self, interpreters: dict[str, str]) -> None:
        """Take the explicit interpreters ({adapter: path}), for `stagebench.suite.processes.interpreters.find`."""
        self._interpreters = interpreters
        self._checked: set[Path] = set()

    def of(self, proven: Launch, layers: bool = False) -> Path:
        """Return the folder of the results to compare a proof with; StagebenchError if they cannot be made.

        `layers`: those of the network cut after each layer (stagebench.suite.worker.locate).
        """
        configuration = configuration_of_oracle(proven)
        parts = {
            "bundle": bundle.digest(oracle()),
            "graph": proven.workload.graph().without_dropout().digest,
            "configuration": configuration.to_dict(),
            **({"layers": True} if layers else {}),
        }
        name = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        folder = cache_folder("oracles") / name
        if folder not in self._checked:
            if not intact(folder):
                self._make(proven, configuration, folder, layers)
            self._checked.add(folder)
        return folder

    def rounding(self, proven: Launch, folder: Path, bits: int) -> Tolerance:
        """Return the distances of the oracle from itself with every layer's result rounded to `bits` bits.

        They are kept in the oracle's `folder`; StagebenchError if they cannot be made.
        """
        path = folder / "rounded" / f"{bits}.json"
        with contextlib.suppress(StoreError, OSError, TypeError):
            return Tolerance(**_kept(path))
        configuration = configuration_of_oracle(proven)
        configuration = configuration.on(knobs={**configuration.knobs, "bits": bits})
        prove = Prove(proven.workload.graph(), str(folder), configuration.batch)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            attempt = self._ran(proven, configuration, prove, Path(scratch))
        found = distances(of_type(Proof, attempt.messages[0])[0])
        path.parent.mkdir(exist_ok=True)
        write_whole(path, json.dumps(asdict(found), indent=1) + "\n")
        return found

    def _make(self, proven: Launch, configuration: Configuration, folder: Path, layers: bool) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            results = Path(scratch) / "results"
            results.mkdir()
            task = MakeOracle(proven.workload.graph(), str(results), configuration.batch, layers)
            self._ran(proven, configuration, task, Path(scratch))
            (results / DIGESTS).write_text(json.dumps(digests(results), indent=1) + "\n")
            with contextlib.suppress(OSError):
                if not intact(folder):  # else another run has just made it, with equal results
                    folder.rename(Path(scratch) / "broken")
            with contextlib.suppress(OSError):
                results.rename(folder)

    def _ran(self, proven: Launch, configuration: Configuration, task: Task, scratch: Path) -> Attempt:
        adapter, workload = oracle(), proven.workload
        interpreter, limits = find(adapter, self._interpreters), Limits(LIMIT, PATIENCE)
        launch = replace(single(adapter, workload, interpreter, scratch, limits), configuration=configuration)
        attempt = launch.run(scratch, task)
        if attempt.outcome != "ok":
            raise StagebenchError(
                f"the float64 oracle of {workload.name} could not be made in {cache_folder('oracles')} "
                f"(STAGEBENCH_CACHE names another place): {attempt.reason}"
            )
        return attempt


def configuration_of_oracle(proven: Launch) -> Configuration:
    """Return the configuration in which the oracle trains the joined batch of a proof, on all cores."""
    adapter, case = oracle(), proven.configuration
    mixed = any(layer.mixes_samples for layer in proven.workload.graph().layers)
    found = plain(
        adapter,
        proven.workload,
        batch=case.global_batch,
        knobs=pieces(proven.adapter, case) if mixed else {},
        **{name: getattr(case, name) for name in UPDATE},
    )
    return found.on(placement=replace(found.placement, threads=cores()))


def pieces(adapter: Adapter, case: Configuration) -> dict[str, int]:
    """Return the oracle's knobs for batch statistics, which each network's every microbatch has of its own.

    `shards` is the number of these pieces of the joined batch; `observed`, how many of them a network's running
    statistics see.
    """
    microbatches = ask(adapter, "microbatches", case)
    alone = case.placement.device_count // ask(adapter, "model_parallel_size", case)
    return {"shards": alone * microbatches, "observed": microbatches}


def intact(folder: Path) -> bool:
    """Return whether a folder holds an oracle's results, complete and unchanged."""
    try:
        return _kept(folder / DIGESTS) == digests(folder)
    except (StoreError, OSError):
        return False


def _kept(path: Path) -> dict[str, Any]:
    remedy = "it is made again"
    return object_of(text_of(path, remedy, SMALL), path, remedy)


def digest(folder: Path) -> str:
    """Return the digest of all files but DIGESTS."""
    return hashlib.sha256(json.dumps(digests(folder)).encode()).hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file but DIGESTS, by name."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name != DIGESTS and path.is_file():
            with path.open("rb") as stream:
                found[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
