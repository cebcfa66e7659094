"""The oracle's float64 results in the cache: made once, and used only if they are unchanged.

With a missing file, a proof would pass that compared less; with a changed file, the adapter would be blamed. So each
folder holds the digests of its files, which are checked before it is used.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from suite.contracts.adapter import Adapter
from suite.contracts.case import Configuration
from suite.errors import StagebenchError, StoreError
from suite.files import cache_folder
from suite.plugin_errors import ask
from suite.plugins import oracle
from suite.processes import bundle
from suite.processes.attempt import Limits
from suite.processes.interpreters import find
from suite.processes.launch import Launch
from suite.processes.single import plain, single
from suite.results.stored import SMALL, object_of, text_of
from suite.worker.job import MakeOracle

PATIENCE = 1800.0  # seconds for an oracle
DIGESTS = "digests.json"  # the digest of every other file
# The fields of a configuration that decide an update.
UPDATE = ("optimiser", "lr", "momentum", "beta1", "beta2", "epsilon", "weight_decay", "schedule")


class Oracles:
    """Makes oracles, or finds them in the cache."""

    def __init__(self, interpreters: dict[str, str]) -> None:
        """Take the explicit interpreters ({adapter: path}), for `suite.processes.interpreters.find`."""
        self._interpreters = interpreters
        self._checked: set[Path] = set()

    def of(self, proven: Launch) -> Path:
        """Return the folder of the results to compare a proof with; StagebenchError if they cannot be made."""
        adapter, case = oracle(), proven.configuration
        mixed = any(layer.mixes_samples for layer in proven.workload.graph().layers)
        configuration = plain(
            adapter,
            proven.workload,
            batch=case.global_batch,  # the joined one
            knobs=pieces(proven.adapter, case) if mixed else {},
            **{name: getattr(case, name) for name in UPDATE},
        )
        all_cores = replace(configuration.placement, threads=len(os.sched_getaffinity(0)))
        configuration = configuration.on(placement=all_cores)
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
                if not intact(folder):  # else another run has just made it, with equal results
                    folder.rename(Path(scratch) / "broken")
            with contextlib.suppress(OSError):
                results.rename(folder)


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
        text = text_of(folder / DIGESTS, "it is made again", SMALL)
        return object_of(text, folder / DIGESTS, "it is made again") == digests(folder)
    except (StoreError, OSError):
        return False


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file but DIGESTS, by name."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name != DIGESTS and path.is_file():
            with path.open("rb") as stream:
                found[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
