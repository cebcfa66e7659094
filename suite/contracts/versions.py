"""The version of the contract that plugins are written against, and what each version changed.

An adapter names the version that it was written for. An adapter of an older version is refused, with the list of the
necessary changes.
"""

CONTRACT = 2

# The present names of modules that a plugin may import, by their names in version 1.
MOVED = {
    "suite.adapter": "suite.contracts.adapter",
    "suite.allocator": "suite.contracts.allocator",
    "suite.backend": "suite.contracts.backend",
    "suite.case": "suite.contracts.case",
    "suite.hooks": "suite.contracts.hooks",
    "suite.launcher": "suite.contracts.launcher",
    "suite.observer": "suite.session.observer",
    "suite.attempt": "suite.processes.attempt",
    "suite.store": "suite.results.run_folder",
    "suite.worker.records": "suite.worker.packed_set",
}

CHANGES = {
    2: (
        "plugin.py: import Knob from suite.contracts.knobs; what else came from suite.adapter, suite.backend, "
        "suite.case, suite.hooks and suite.launcher is in suite.contracts",
        "plugin.py: the methods that took a Case take a Configuration (suite.contracts.case), which has the same "
        "fields but those of measuring; Adam's beta 1 is `beta1`, no longer `momentum`",
        "plugin.py: `exact` is `synchronous`, `parts` is `model_parallel_size`, `companions` are `sidecars`",
        "plugin.py: in place of `trainer`, `package` names the worker half, and each Strategy its own trainer's class",
        "plugin.py: a knob that belongs to some strategies, or has bounds, says so itself: "
        "Knob(..., strategies=(...), least=..., most=...)",
        "plugin.py: a Strategy that leaves `launchers` out is started by every launcher that fits; mpi=True wants one "
        "whose ranks meet by MPI",
        "worker.py: import Adam, Batch, Joined, Optimiser, SGD, Setup, Unavailable and Unsupported from "
        "suite.worker.contract",
        "worker.py: a reader of its own is made by `make_reader`, in place of `open_input`, and has a `close`",
    ),
}


def changes_since(version: int) -> str:
    """Return the changes that a plugin written for an older version needs, as a numbered list."""
    found = [change for newer in range(version + 1, CONTRACT + 1) for change in CHANGES[newer]]
    return "\n".join(f"  {number}. {change}" for number, change in enumerate(found, 1))
