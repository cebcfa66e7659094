"""What a worker can be asked to do with its trainer: measure, train, prove, pack a data set, exchange, or be looked at.

Oldest Python: 3.6.
"""

import os
from typing import Any, Callable, Dict

import numpy as np

from suite.worker import evidence, packing
from suite.worker.comm import comm
from suite.worker.contract import Unsupported
from suite.worker.feed import ResidentFeed, StreamFeed, share, synthetic
from suite.worker.job import Outbox
from suite.worker.loop import Loop
from suite.worker.passes import Passes
from suite.worker.reading import Reading
from suite.worker.records import RecordSource
from suite.worker.sources import Source, open_source
from suite.worker.split import split
from suite.worker.trainer import Trainer
from suite.worker.training import Training
from workloads import weights
from workloads.graph import Graph
from workloads.preprocessing import Preprocessing


class Diverged(Exception):
    """The loss is not a finite number."""


def measure(trainer: Trainer, job: Dict[str, Any], outbox: Outbox) -> None:
    """Build, then run every pass that has something to measure here."""
    case = job["case"]
    graph = Graph.from_dict(job["graph"])
    outbox.send("phase", name="build")
    trainer.build(graph, dict(weights.initial(graph)))
    if case["passes"] == ["train"]:
        train(trainer, graph, job, outbox)
        return
    feed = fed(trainer, graph, job)
    outbox.send("notes", notes=feed.notes())
    passes = Passes(trainer, feed, Loop(trainer, case["sampling"], outbox.progress))
    for name in case["passes"]:
        if passes.skipped(name):
            continue
        outbox.send("phase", name=name)
        feed.prepare()
        try:
            record = passes.run(name)
        except Unsupported as error:
            outbox.send("notes", notes={name: "not measured: %s" % error})
            continue
        outbox.send("pass", record=record)
        if name == "staged":  # now: the passes to come exchange too, in another way
            layers = trainer.layer_times()
            if layers is not None:
                outbox.send("layers", layers=layers)
        look_at_loss(name, record, outbox)
    outbox.send("notes", notes=dict(trainer.notes(), **feed.notes()))


def fed(trainer: Trainer, graph: Graph, job: Dict[str, Any]) -> Any:
    """A ResidentFeed of synthetic data, or a StreamFeed of real ones."""
    setup = trainer.setup
    if job["data"] is None:
        whole = synthetic(graph, setup.batch * setup.replicas, setup.seed)
        return ResidentFeed(trainer, share(whole, setup.replica, setup.batch))
    reading = Reading(opened(trainer, graph, job), job, setup.rank)
    trainer.open_input(reading.view)
    return StreamFeed(trainer, reading)


def opened(trainer: Trainer, graph: Graph, job: Dict[str, Any]) -> Source:
    """The source of the job's data, ready to be read."""
    how = Preprocessing(**job["preprocessing"])
    if job["data"]["kind"] != "records":
        return open_source(job["data"], graph.input_shape, graph.classes, how)
    records = RecordSource(job["data"]["path"], how)
    records.check(graph.input_shape, graph.classes)
    source: Source = trainer.open_records(records)
    return source


def train(trainer: Trainer, graph: Graph, job: Dict[str, Any], outbox: Outbox) -> None:
    """Whole epochs, with a test after each."""
    if job["data"] is None:
        raise Unsupported("the pass 'train' learns from real data, and the case has synthetic ones")
    plan = job["case"]["training"]
    learning, testing = split(opened(trainer, graph, job), plan["held_out"])
    reading = Reading(learning, job, trainer.setup.rank)
    reading.prepare()
    outbox.send("notes", notes=dict(reading.notes(), tested=testing.name))
    outbox.send("phase", name="train")
    record = Training(trainer, graph, outbox.progress).run(reading.view, testing, plan["epochs"])
    outbox.send("training", record=record)
    outbox.send("notes", notes=dict(trainer.notes(), **reading.notes()))
    last = record["epochs"][-1]["loss"]
    if last - last != 0.0:
        raise Diverged("the loss is %r after %d epochs" % (last, len(record["epochs"])))


def look_at_loss(name: str, record: Dict[str, Any], outbox: Outbox) -> None:
    """Raise Diverged where a pass that exchanges lost its way; compute_only is not the case's training: a note."""
    if "loss" not in record or record["loss"] - record["loss"] == 0.0:
        return
    words = "the loss is %r after %d steps of the %s pass" % (record["loss"], len(record["step_s"]), name)
    if name != "compute_only":
        raise Diverged(words)
    outbox.send("notes", notes={name: words + ", which trains without the exchange"})


def prove(trainer: Trainer, job: Dict[str, Any], outbox: Outbox) -> None:
    """Compare this trainer's results with the oracle's."""
    outbox.send("phase", name="proof")
    outbox.send("proof", proof=evidence.prove(trainer, Graph.from_dict(job["graph"]), job["batch"], job["oracle"]))


def oracle(trainer: Trainer, job: Dict[str, Any], outbox: Outbox) -> None:
    """Write the results that others are compared with; `batch` is the whole one here."""
    outbox.send("phase", name="oracle")
    evidence.write_oracle(trainer, Graph.from_dict(job["graph"]), job["batch"], job["oracle"])


def pack(trainer: Trainer, job: Dict[str, Any], outbox: Outbox) -> None:
    """Write the job's data set as records of the framework's own format."""
    outbox.send("phase", name="pack")
    packing.pack(trainer, opened(trainer, Graph.from_dict(job["graph"]), job), job["pack"], outbox)


def read(trainer: Trainer, job: Dict[str, Any], outbox: Outbox) -> None:
    """Read `samples` samples as a measurement would, and leave them in `read.npz` for whoever compares them."""
    outbox.send("phase", name="read")
    graph = Graph.from_dict(job["graph"])
    trainer.build(graph, dict(weights.initial(graph)))  # as the contract's order has it: a reader may ask for the shape
    trainer.open_input(Reading(opened(trainer, graph, job), job, trainer.setup.rank).view)
    batches = []
    for _ in range(-(-job["samples"] // trainer.setup.batch)):
        batch = trainer.as_numpy(trainer.next_batch())
        batches.append((batch.images.copy(), batch.labels.copy()))  # a reader may fill the same buffer again
    images, labels = (np.concatenate(parts)[: job["samples"]] for parts in zip(*batches))
    np.savez(os.path.join(job["output"], "read.npz"), images=images, labels=labels)
    outbox.send("notes", notes=trainer.notes())


def look(trainer: Trainer, job: Dict[str, Any], outbox: Outbox) -> None:
    """Nothing more: that it joined is the answer."""


TASKS: Dict[str, Callable[[Any, Dict[str, Any], Outbox], None]] = {
    "measure": measure,
    "prove": prove,
    "oracle": oracle,
    "pack": pack,
    "read": read,
    "look": look,
    "comm": comm,
}
