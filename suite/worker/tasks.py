"""The tasks that a worker runs with its trainer; `stagebench.suite.worker.job` defines them."""

import resource
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

import numpy as np

from stagebench.suite.worker import (
    behaviour,
    evidence,
    gpus,
    job,
    kernels,
    locate,
    messages,
    noise,
    packed_set,
    peaks,
    predictor,
)
from stagebench.suite.worker.comm import comm
from stagebench.suite.worker.communicator import Communicator
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.feed import Reading, ResidentFeed, StreamFeed, own_synthetic
from stagebench.suite.worker.loop import Loop
from stagebench.suite.worker.member import Member
from stagebench.suite.worker.packed_set import RecordSource
from stagebench.suite.worker.pass_kinds import BY_NAME, KERNELS, SERVER, SPEEDS, STAGED, TRAIN
from stagebench.suite.worker.passes import Passes
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.queries import Loads, tensors_of
from stagebench.suite.worker.ranks import Outbox
from stagebench.suite.worker.sources import Source, open_source, split
from stagebench.suite.worker.trainer import Arrays, Trainer
from stagebench.suite.worker.training import Training
from stagebench.suite.worker.turns import Turns
from stagebench.workloads import weights
from stagebench.workloads.graph import Graph

SUBNORMAL = 1e-3  # a share of all parameters, or of all gradients


class Diverged(Exception):
    """A loss that is not a finite number."""


def measure(made: "Union[Trainer, Predictor]", task: job.Measure, outbox: Outbox) -> None:
    """Build the network, then run every pass that has something to measure here."""
    infer(made, task, outbox) if isinstance(made, Predictor) else measure_training(made, task, outbox)


def infer(made: Predictor, task: job.Measure, outbox: Outbox) -> None:
    """Load the network with its initial weights, then put every load on it."""
    build(made, task.graph, outbox)
    turns = Turns(outbox.folder, made.setup.rank, outbox.send)
    loads = Loads(made, task.graph, Loop(made, task.sampling, outbox.progress, turns))
    before = reference(made)
    for name in task.passes:
        outbox.send(messages.Phase(name))
        if name == SERVER:
            with costs_a_note(outbox, name, "not measured", task.model_server is None):
                for each in loads.tries(task, outbox):
                    outbox.send(each)
            continue
        outbox.send(loads.run(name))
        if name in SPEEDS:
            outbox.send(messages.Noise(before, [], loads.host_use))
    outbox.send(messages.Noise(before, reference(made), loads.host_use))
    send_memory(made, outbox)
    if task.peaks:
        measure_peaks(made, outbox, task.sampling.seconds)
    with costs_a_note(outbox, "notes", "not known"):
        outbox.send(messages.Notes(made.notes()))


def measure_training(trainer: Trainer, task: job.Measure, outbox: Outbox) -> None:
    """Run the passes of a trainer."""
    build(trainer, task.graph, outbox)
    with outbox.at_work():  # decoding into memory
        feed = feed_of(trainer, task, outbox.folder)
    outbox.send(messages.Notes(feed.notes()))
    turns = Turns(outbox.folder, trainer.setup.rank, outbox.send)
    passes = Passes(trainer, feed, Loop(trainer, task.sampling, outbox.progress, turns), task.passes)
    before = reference(trainer)
    staged = False
    for name in task.passes:
        if name == KERNELS or passes.skipped(name):
            continue
        outbox.send(messages.Phase(name))
        with outbox.at_work():  # warming the page cache
            feed.prepare()
        try:
            found = passes.run(name)
        except Unsupported as error:
            outbox.send(messages.Notes({name: f"not measured: {error}"}))
            continue
        outbox.send(found)
        if name in SPEEDS:  # now: the speed is kept, whatever becomes of later passes
            outbox.send(messages.Noise(before, [], passes.host_use))
        if name == STAGED:  # now: later passes exchange too, in another way
            with costs_a_note(outbox, "layers", "not timed", passes.alone):
                outbox.send(messages.Layers(passes.layer_times()))
            staged = True
        check_loss(found, outbox)
    outbox.send(messages.Noise(before, reference(trainer), passes.host_use))
    send_memory(trainer, outbox)
    if task.peaks:  # afterwards: the matrices take memory too
        measure_peaks(trainer, outbox, task.sampling.seconds)
    if KERNELS in task.passes:  # last of all: a profiler takes memory, and may leave something behind
        outbox.send(messages.Phase(KERNELS))
        feed.prepare()
        send_kernels(passes, trainer.setup.rank, outbox)
    batch = feed.resident().place(None) if staged else None
    with costs_a_note(outbox, "notes", "not known"):
        outbox.send(messages.Notes(dict(trainer.notes(), **feed.notes())))
    with costs_a_note(outbox, "subnormal numbers", "not known"):
        outbox.send(messages.Notes(subnormal_note(trainer, batch)))


@contextmanager
def costs_a_note(outbox: Outbox, name: str, what: str, alone: bool = True) -> Iterator[None]:
    """Send a note of figures that an adapter refuses to give, or fails to: a measurement that is done is kept.

    If this rank is not `alone`, a failure is raised: the other ranks may wait for it.
    """
    try:
        yield
    except Exception as error:
        refused = isinstance(error, Unsupported)
        if not (alone or refused):
            raise
        text = f"{error}" if refused else f"{type(error).__name__}: {error}"
        outbox.send(messages.Notes({name: f"{what}: {text}"}))


def send_kernels(passes: Passes, rank: int, outbox: Outbox) -> None:
    """Send every kernel's times, and keep rank 0's trace of them."""
    trace = f"{outbox.folder}/{kernels.TRACE}" if rank == 0 else ""  # several would show the same
    found: Optional[messages.Kernels] = None
    with costs_a_note(outbox, KERNELS, "not timed", passes.alone):
        found = passes.kernels(trace)
    if found is not None:
        outbox.send(found)
        if trace and not found.trace:
            outbox.send(messages.Notes({KERNELS: f"their trace has more than {kernels.LARGEST >> 20} MiB"}))


def reference(made: Member) -> List[float]:
    """Return the times of the fixed computation (`noise.reference`) while no rank has anything else to do."""
    made.synchronize()
    made.maximum(0.0)
    return noise.reference()


def send_memory(made: Member, outbox: Outbox) -> None:
    """Send the peak memory so far."""
    resident, on_devices = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, None  # Linux counts it in KiB
    with costs_a_note(outbox, "memory", "of devices not known"):
        on_devices = made.peak_device_bytes()
    outbox.send(messages.Memory(resident, on_devices))


def measure_peaks(made: Member, outbox: Outbox, seconds: float) -> None:
    """Measure the peaks on all ranks at once; a pass takes `seconds`."""
    outbox.send(messages.Phase("peaks"))
    made.maximum(0.0)

    def synchronize() -> None:
        made.synchronize()
        outbox.progress("peaks", "measure", 1, 1)  # on busy cores the products take longer than some silence limits

    with costs_a_note(outbox, "peaks", "not measured"):
        yardstick = made.yardstick()
        if yardstick is not None:
            outbox.send(peaks.measure(yardstick, made.setup.devices, synchronize, seconds))


def subnormal_note(trainer: Trainer, batch: Any = None) -> Dict[str, Any]:
    """Return a note if more numbers than SUBNORMAL are too small to be normal: processors compute slowly with them.

    The numbers are the parameters; with a batch, on which a staged iteration is begun, this rank's gradients, too.
    """
    found = [("parameters", subnormal(trainer.parameters()))]
    if batch is not None:
        trainer.forward(batch)
        trainer.backward()
        found.append(("gradients", subnormal(trainer.gradients())))
    named = [f"{100.0 * part:.2g} % of the {name}" for name, part in found if part > SUBNORMAL]
    return {"subnormal": ", ".join(named)} if named else {}


def subnormal(tensors: Arrays) -> float:
    """Return the share of the tensors' numbers that are subnormal."""
    small = total = 0
    for tensor in tensors.values():
        size = np.abs(tensor)
        small += int(np.count_nonzero((size > 0) & (size < np.finfo(size.dtype).tiny)))
        total += size.size
    return small / max(total, 1)


def build(made: "Union[Trainer, Predictor]", graph: Graph, outbox: Outbox) -> None:
    """Build the network with its initial weights; for inference, which does not train, with those of a proof.

    As initialised, a deep residual network's answers leave the range of short formats.
    """
    outbox.send(messages.Phase("build"))
    with outbox.at_work():
        initial = weights.for_proof(graph) if isinstance(made, Predictor) else dict(weights.initial(graph))
    begin = time.perf_counter()
    if isinstance(made, Predictor):
        made.load(graph, tensors_of(graph, initial))
    else:
        made.build(graph, initial)
    made.synchronize()
    outbox.send(messages.Built(time.perf_counter() - begin))


def feed_of(trainer: Trainer, task: job.Measure, folder: str) -> Any:
    """Return a ResidentFeed of synthetic data, or a StreamFeed of real data."""
    setup = trainer.setup
    if task.data is None:
        return ResidentFeed(trainer, own_synthetic(task.graph, setup.batch, setup.seed, setup.replica))
    source = opened(trainer, task.graph, task.data)
    reading = Reading(source, task.input, setup, folder)
    trainer.open_input(reading.view)
    return StreamFeed(trainer, reading)


def opened(trainer: Trainer, graph: Graph, data: job.DataSet) -> Source:
    """Open the source of the data set and check it against the network."""
    if data.kind != "records":
        return open_source(data, graph.input_shape, graph.classes, graph.vocabulary)
    records = RecordSource(data.path, data.preprocessing)
    records.check(graph.input_shape, graph.classes)
    source: Source = trainer.open_records(records)
    return source


def check_loss(found: messages.Pass, outbox: Outbox) -> None:
    """Raise Diverged if the loss of a pass that exchanges is not finite.

    Such a loss of compute_only, which is not the case's training, is noted.
    """
    if found.loss is None or is_finite(found.loss):
        return
    text = f"the loss is {found.loss!r} after {len(found.step_s)} steps of the {found.name} pass"
    if BY_NAME[found.name].exchanges or not BY_NAME[found.name].has_loss:
        raise Diverged(text)
    outbox.send(messages.Notes({found.name: f"{text}, which trains without the exchange"}))


def is_finite(loss: float) -> bool:
    return loss - loss == 0.0


def train(trainer: Trainer, task: job.Train, outbox: Outbox) -> None:
    """Train whole epochs, with a test after each."""
    build(trainer, task.graph, outbox)
    if task.data is None:
        raise Unsupported(f"the pass {TRAIN!r} learns from real data, and the case has synthetic ones")
    learning, testing = split(opened(trainer, task.graph, task.data), task.training.held_out)
    with outbox.at_work():
        reading = Reading(learning, task.input, trainer.setup, outbox.folder)
        reading.prepare()
    outbox.send(messages.Notes(dict(reading.notes(), tested=testing.name)))
    outbox.send(messages.Phase(TRAIN))
    training = Training(trainer, task.graph, outbox.progress)
    before = reference(trainer)
    found = training.run(reading.view, testing, task.training.epochs, task.schedule, task.training.patience)
    use = noise.together([epoch.host_use for epoch in found.epochs])
    outbox.send(found)
    outbox.send(messages.Noise(before, reference(trainer), train=use))
    send_memory(trainer, outbox)
    outbox.send(messages.Notes(dict(trainer.notes(), **reading.notes())))
    last = found.epochs[-1].loss
    if last is None or not is_finite(last):
        raise Diverged(f"the loss is {last!r} after {len(found.epochs)} epochs")


def prove(made: "Union[Trainer, Predictor]", task: job.Prove, outbox: Outbox) -> None:
    """Compare its results with the oracle's; or, of a trainer, those of the network cut after each layer."""
    outbox.send(messages.Phase("proof"))
    if isinstance(made, Predictor):
        outbox.send(predictor.prove(made, task.graph, task.samples, task.oracle))
    elif task.layers:
        outbox.send(messages.Behaviour(locate.first_wrong_layer(made, task.graph, task.samples, task.oracle)))
        return
    else:
        outbox.send(evidence.prove(made, task.graph, task.samples, task.oracle))
    send_memory(made, outbox)


def behave(trainer: Trainer, task: job.Behave, outbox: Outbox) -> None:
    """Check dropout, `predict`, `step_alone`, laziness and the threads."""
    outbox.send(messages.Behaviour(list(behaviour.Look(trainer, task, outbox).problems())))


def make_oracle(trainer: Trainer, task: job.MakeOracle, outbox: Outbox) -> None:
    """Write the results that others are compared with."""
    outbox.send(messages.Phase("oracle"))
    write = locate.write_layers if task.layers else evidence.write_oracle
    write(trainer, task.graph, task.samples, task.folder)


def pack(trainer: Trainer, task: job.Pack, outbox: Outbox) -> None:
    """Write the data set as records of the framework's own format."""
    outbox.send(messages.Phase("pack"))
    packed_set.pack(trainer, opened(trainer, task.graph, task.data), task, outbox)


def read(trainer: Trainer, task: job.Read, outbox: Outbox) -> None:
    """Read samples and store them in `read.npz`, to be compared."""
    outbox.send(messages.Phase("read"))
    trainer.build(
        task.graph, dict(weights.initial(task.graph))
    )  # as the contract's order has it: a reader may ask for the shape
    source = opened(trainer, task.graph, task.data)
    trainer.open_input(Reading(source, task.input, trainer.setup, outbox.folder).view)
    batches = []
    for _ in range(-(-task.samples // trainer.setup.batch)):
        batch = trainer.as_numpy(trainer.next_batch())
        batches.append((batch.inputs.copy(), batch.labels.copy()))  # a reader may fill the same buffer again
    images, labels = (np.concatenate(parts)[: task.samples] for parts in zip(*batches))
    np.savez(f"{outbox.folder}/read.npz", images=images, labels=labels)
    outbox.send(messages.Notes(trainer.notes()))


def communicate(communicator: Communicator, task: job.Communicate, outbox: Outbox) -> None:
    """Measure the exchanges, and the noise of the host during them."""
    before = reference(communicator)
    meter = noise.Meter(gpus.driven(communicator.setup))
    meter.begin()
    comm(communicator, task, outbox)
    use = meter.end()
    outbox.send(messages.Noise(before, reference(communicator), comm=use))
    send_memory(communicator, outbox)


# By the task's type: (trainer or communicator, task, outbox).
RUN: Dict[Any, Callable[[Any, Any, Outbox], None]] = {
    job.Measure: measure,
    job.Train: train,
    job.Prove: prove,
    job.Behave: behave,
    job.MakeOracle: make_oracle,
    job.Pack: pack,
    job.Read: read,
    job.Look: lambda *_: None,  # joining was the task
    job.Communicate: communicate,
}
