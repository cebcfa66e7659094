"""Setups by keyword, and trainers that are closed when a test ends."""

import importlib
import os
import re
import time
from contextlib import contextmanager
from pathlib import Path

from stagebench.suite.worker.contract import SGD, Adam, Setup
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights

LOOPS, WHOLE = 40, 0.95
RULE = SGD(lr=0.01, momentum=0.9, weight_decay=1e-3)
# Of the knobs that have no "auto": a case has every knob of its adapter.
DECLARED = {
    "backups": 0,
    "bits": 53,
    "block_steps": 10,
    "compression": "none",
    "cycle_time_ms": 1,
    "fusion_threshold_mb": 128,
    "lrn": "composed",
    "microbatches": 1,
    "mode": "sync",
    "observed": 1,
    "pack_mb": "auto",
    "period": 8,
    "schedule": "gpipe",
    "server_ranks": "all",
    "servers": 1,
    "shards": 1,
    "staleness": "any",
    "threshold": 0.5,
}


class Knobs(dict):
    """Those that a test is about; any other is as its plugin declares it."""

    def __missing__(self, name):
        return DECLARED[name]


def setup(**changes):
    """One rank on a CPU with four samples in float32, but for the changes; every field is a keyword."""
    values = {"rank": 0, "world": 1, "local_rank": 0, "strategy": "single", "device": "cpu", "threads": 1, "batch": 4}
    values.update(precision="float32", tuning="default", knobs={}, optimiser=RULE, seed=1, readers=0)
    values.update(changes)
    return Setup(**dict(values, knobs=Knobs(values["knobs"])))


def setup_with_knobs(**options):
    """The same, where a keyword that is no field of a setup is a knob."""
    fields = {name: options.pop(name) for name in Setup._fields if name in options}
    return setup(**dict(fields, knobs=dict(fields.get("knobs", {}), **options)))


def optimiser(numbers):
    """The rule whose fields came through JSON as a list."""
    return (Adam if len(numbers) == len(Adam._fields) else SGD)(*numbers)


def quick_to_compile():
    """Have XLA on CPUs compile without LLVM's optimisations, if it has compiled nothing yet."""
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0").strip()


def by_strategy(adapter):
    """A function that makes the trainer of a setup's strategy, as the adapter's plugin.py names it.

    It reads that file's text: an interpreter of Python 3.6 cannot import it.
    """
    text = (Path(__file__).parents[2] / "adapters" / adapter / "plugin.py").read_text()
    places = dict(re.findall(r'"(\w+)",\s*"(stagebench\.adapters\.[\w.]+:\w+)"', text))

    def trainer(setup):
        module, _, name = places[setup.strategy].partition(":")
        return getattr(importlib.import_module(module), name)(setup)

    return trainer


@contextmanager
def started(trainer, **defaults):
    """A function that makes and starts trainers of a class, `make(batch=8, SOME_KNOB=...)`; closes all at the end."""
    made = []

    def make(**options):
        made.append(trainer(setup_with_knobs(**dict(defaults, **options))))
        made[-1].start()
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.close()


def share_of_steps(trainer, graph, steps):
    """The time from the first to the last mark of a loop, as a share of its wall time; the largest of several loops.

    Whatever else the machine does while a loop ends makes its share smaller; one that has nearly all is the last.
    """
    trainer.build(graph, dict(weights.initial(graph)))
    batch = trainer.to_device(synthetic(graph, trainer.setup.batch, 1))
    trainer.step(batch)  # it may compile
    trainer.synchronize()
    shares = []
    for _ in range(LOOPS):
        begin, first = time.perf_counter(), trainer.mark()
        for _ in range(steps):
            trainer.step(batch)
            last = trainer.mark()
        trainer.synchronize()
        shares.append(trainer.elapsed(first, last) / (time.perf_counter() - begin))
        if shares[-1] > WHOLE:
            break
    return max(shares)


def staged(trainer, batch):
    """One iteration, stage by stage."""
    trainer.forward(batch)
    trainer.backward()
    trainer.communicate()
    trainer.update()


def timed_layers(trainer, graph):
    """The layers' times of a trainer on synthetic data, looked at: whole, in order, none of them free."""
    trainer.build(graph, dict(weights.initial(graph)))
    itemsize = 8 if trainer.setup.precision == "float64" else 4
    rows = trainer.layer_times(trainer.to_device(synthetic(graph, trainer.setup.batch, 1)))
    assert [row.layer for row in rows] == [layer.name for layer in graph.layers] + ["loss"]
    assert [row.bytes for row in rows[:-1]] == [layer.gradient_bytes(itemsize) for layer in graph.layers]
    assert all(row.forward_s > 0 and row.communication_s == 0 for row in rows if row.bytes or row is rows[-1])
    assert all(row.backward_s > 0 for row in rows if row.bytes)
    assert all((row.ready_s is not None) >= bool(row.bytes) for row in rows) or not any(row.ready_s for row in rows)
    return rows
