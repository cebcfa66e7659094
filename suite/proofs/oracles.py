"""The oracle's float64 results in the cache: made once, and used only as they were made.

A folder there that lacks a file would let a proof pass that compared less, and one that was changed would blame the
adapter. So each holds the digests of its files, which are checked before it is used.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from suite.cache import cache_folder
from suite.contracts.adapter import Adapter
from suite.contracts.case import Configuration
from suite.errors import StagebenchError, StoreError
from suite.plugins import oracle
from suite.processes import bundle
from suite.processes.attempt import Limits
from suite.processes.interpreters import find
from suite.processes.launch import Launch
from suite.processes.single import plain, single
from suite.results.stored import SMALL, object_of, text_of
from suite.worker.job import MakeOracle

PATIENCE = 1800.0  # seconds for an oracle
DIGESTS = "digests.json"  # of every other file
# What of a configuration decides an update.
UPDATE = ("optimiser", "lr", "momentum", "beta1", "beta2", "epsilon", "weight_decay", "schedule")


class Oracles:
    """Makes oracles, or finds them in the cache."""

    def __init__(self, interpreters: dict[str, str]) -> None:
        """`interpreters` are the explicit settings (adapter: path) that `suite.processes.interpreters.find` honours."""
        self._interpreters = interpreters
        self._checked: set[Path] = set()

    def of(self, proven: Launch) -> Path:
        """The folder of the results that a proof is compared with; StagebenchError when they cannot be made."""
        adapter, configuration = oracle(), configuration_of_oracle(proven)
        parts = {
            "bundle": bundle.digest(adapter),
            "graph": proven.workload.graph().without_dropout().digest,
            "configuration": configuration.to_dict(),
        }
        name = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        folder = cache_folder("oracles") / name
        if folder not in self._checked:
            if not intact(folder):
                self._make(proven, configuration, folder)
            self._checked.add(folder)
        return folder

    def _make(self, proven: Launch, configuration: Configuration, folder: Path) -> None:
        adapter, workload = oracle(), proven.workload
        interpreter, limits = find(adapter, self._interpreters), Limits(PATIENCE, PATIENCE)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            launch = single(adapter, workload, interpreter, Path(scratch), limits)
            launch = replace(launch, configuration=configuration)
            results = Path(scratch) / "results"
            results.mkdir()
            attempt = launch.run(Path(scratch), MakeOracle(workload.graph(), str(results), configuration.batch))
            if attempt.outcome != "ok":
                raise StagebenchError(
                    f"the float64 oracle of {workload.name} could not be made in {folder.parent} "
                    f"(STAGEBENCH_CACHE names another place): {attempt.reason}"
                )
            (results / DIGESTS).write_text(json.dumps(digests(results), indent=1) + "\n")
            with contextlib.suppress(OSError):
                if not intact(folder):  # another run may have made it meanwhile: the same results, so either will do
                    folder.rename(Path(scratch) / "broken")
            with contextlib.suppress(OSError):
                results.rename(folder)


def configuration_of_oracle(proven: Launch) -> Configuration:
    """How the oracle trains what is to be proven."""
    adapter, case = oracle(), proven.configuration
    mixed = any(layer.mixes_samples for layer in proven.workload.graph().layers)
    found = plain(
        adapter,
        proven.workload,
        batch=case.global_batch,
        knobs=pieces(proven.adapter, case) if mixed else {},
        **{name: getattr(case, name) for name in UPDATE},
    )
    return found.on(placement=replace(found.placement, threads=len(os.sched_getaffinity(0))))


def pieces(adapter: Adapter, case: Configuration) -> dict[str, int]:
    """The oracle's knobs: batch statistics are every device's own, or every microbatch's of a network in parts."""
    microbatches = adapter.microbatches(case)
    alone = case.placement.device_count // adapter.model_parallel_size(case)
    return {"shards": alone * microbatches, "observed": microbatches}


def intact(folder: Path) -> bool:
    """Whether a folder holds an oracle, whole and as it was made."""
    try:
        text = text_of(folder / DIGESTS, "it is made again", SMALL)
        return object_of(text, folder / DIGESTS, "it is made again") == digests(folder)
    except (StoreError, OSError):
        return False


def digests(folder: Path) -> dict[str, str]:
    """Of each file but DIGESTS."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name != DIGESTS and path.is_file():
            with path.open("rb") as stream:
                found[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
