"""An adapter that is right but for one mistake is caught, and the first words say by what.

The mistakes are planted in the reference, one a class; a proof and the look at its behaviour run in this process.
"""

import hashlib
import json
import mmap
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from stagebench_conformance import probe
from stagebench_conformance.measured import DECAY, SQUARES, Measured, squares, strayed

from adapters.reference.base import ReferenceTrainer
from adapters.reference.layers.parameterless import Dropout
from suite.contracts.case import Case, Placement
from suite.plugins import workloads
from suite.processes.attempt import Attempt
from suite.proofs.judgement import judge
from suite.proofs.tolerances import tolerance
from suite.worker import behaviour, evidence, messages, noise
from suite.worker.case_parts import Schedule
from suite.worker.contract import SGD, Batch
from suite.worker.job import Behave, DataSet, Train
from suite.worker.messages import HostUse
from suite.worker.tasks import train
from tests.support import jobs, trainers
from workloads.graph import Graph

SAMPLES = 8
HALVES = 2 * [bytes(1 << 24)]  # of a step's work
RULE = SGD(lr=0.05, momentum=0.9, weight_decay=DECAY)


class Right(ReferenceTrainer):
    """Two shards stand for two devices; the step of one alone trains with its share."""

    def step_alone(self, batch):
        half, shards = len(batch.labels) // 2, self._shards
        self._shards = 1
        ReferenceTrainer.step(self, Batch(batch.images[:half], batch.labels[:half]))
        self._shards = shards


# --- how a mistake is planted ---------------------------------------------------


def rule(**changes):
    """Another optimiser than was asked for."""
    return {"__init__": lambda self, setup: Right.__init__(self, trainers.setup(**own(setup, changes)))}


def own(setup, changes):
    return dict(setup._asdict(), optimiser=setup.optimiser._replace(**changes))


def answer(method, change):
    """Another result."""
    return {method: lambda self, *given: change(getattr(Right, method)(self, *given))}


def given(method, change):
    """Another batch."""
    return {method: lambda self, batch: getattr(Right, method)(self, change(batch))}


def instead(method, body):
    return {method: body}


def layer(name, kind=None, **attributes):
    """Another layer of that name."""

    def edit(data):
        (found,) = (each for each in data["layers"] if each["name"] == name)
        found.update(kind=kind or found["kind"], attrs=dict({} if kind else found["attrs"], **attributes))

    return network(edit)


def network(edit):
    def build(self, graph, weights):
        data = graph.to_dict()
        edit(data)
        Right.build(self, Graph.from_dict(data), weights)

    return {"build": build}


def forward(name, change):
    """Another output of that layer."""

    def build(self, graph, weights):
        Right.build(self, graph, weights)
        (found,) = (each for each in self._network.layers if each.node.name == name)
        right = found.forward

        def changed(*inputs):
            outputs, kept = right(*inputs)
            return change(outputs), kept

        found.forward = changed

    return {"build": build}


def backward(name, change):
    """Another gradient by the inputs of that layer."""

    def build(self, graph, weights):
        Right.build(self, graph, weights)
        (found,) = (each for each in self._network.layers if each.node.name == name)
        right = found.backward
        found.backward = lambda kept, gradient: [change(each) for each in right(kept, gradient)]

    return {"build": build}


def dropout(**methods):
    """Another layer than the reference's."""

    def build(self, graph, weights):
        Right.build(self, graph, weights)
        for each in self._network.layers:
            if isinstance(each, Dropout):
                each.__class__ = type("Mistaken", (Dropout,), methods)

    return {"build": build}


# --- the mistakes ----------------------------------------------------------------


def brighter(batch):
    return batch._replace(images=batch.images * 1.001)


def without(name):
    return lambda found: {key: tensor for key, tensor in found.items() if key != name}


def changed(name, change):
    return lambda found: {key: change(tensor) if key == name else tensor for key, tensor in found.items()}


def decay_apart(self):
    """Weight decay beside the momentum instead of within the gradient."""
    weights = self._network.named("weights")
    for tensor in weights.values():
        tensor *= 1 - self.setup.optimiser.lr * DECAY
    proper, self._rule = self._rule, self._rule._replace(weight_decay=0.0)
    Right.update(self)
    self._rule = proper


def sums(self):
    """Over two devices, where the mean is asked for."""
    for run in self._runs:
        self._network.backward(run, 2.0)


def keeps_its_velocity(self, graph, weights):
    kept = getattr(self, "_velocity", None)
    Right.build(self, graph, weights)
    self._velocity = kept or self._velocity


def steps_twice(self, batch):
    Right.step(self, batch)
    Right.step(self, batch)


def trains(self, batch):
    Right.forward(self, batch)
    return Right.logits(self)


def nothing(self, *given):
    pass


def reseeded(self, inputs):
    self._stream.seed(1)
    return Dropout.forward(self, inputs)


def unscaled(self, inputs):
    values, mask = Dropout.forward(self, inputs)
    return values * (1 - behaviour.RATE), mask * (1 - behaviour.RATE)


def with_its_own_dropout(self, batch):
    """Native steps forget it."""
    layers = [each for each in self._network.layers if isinstance(each, Dropout)]
    for each in layers:
        each.attrs = dict(each.attrs, rate=0.0)
    Right.step(self, batch)
    for each in layers:
        each.attrs = dict(each.attrs, rate=behaviour.RATE)


@cache
def connection():
    """To this process itself; it stays open, as a framework's own would."""
    door = socket.create_server(("127.0.0.1", 0))
    return socket.create_connection(door.getsockname()), door.accept()[0], door


def sends_in_vain(self, batch):
    """The exchange without the use of it."""
    Right.step_alone(self, batch)
    connection()[0].sendall(bytes(behaviour.QUIET))


@cache
def shared_memory():
    """Pages that a forked process would see."""
    return mmap.mmap(-1, 2 * behaviour.QUIET)


def shares_in_vain(self, batch):
    """The exchange by shared memory, as MPI's on one host, without the use of it."""
    Right.step_alone(self, batch)
    memory, half = shared_memory(), behaviour.QUIET
    memory[:half], memory[half:] = memory[half:], bytes([memory[-1] + 1]) * half


def passes_all_in_native_steps(self, batch):
    """Its backward knows no masks there."""
    layers = [each for each in self._network.layers if isinstance(each, Dropout)]
    for each in layers:
        each.backward = lambda kept, gradient: [gradient]
    Right.step(self, batch)
    for each in layers:
        del each.backward


def adds_first_weights(self, batch):
    """Those of all devices, not the last ones'."""
    names = [name for name in self.parameters() if name.startswith("mask.")]
    Right.step_alone(self, batch)
    own = {name: self.parameters()[name].copy() for name in names}
    Right.build(self, behaviour.graph(), behaviour.weights())
    Right.step(self, batch)
    for name in names:
        self._network.named("weights")[name][...] = own[name]


def hashes_in(threads):
    """A step that so many threads share; NumPy's own are not this adapter's to set."""
    pool = ThreadPoolExecutor(threads)

    def step(self, batch):
        if batch.images.shape[1:] == behaviour.graph().input_shape:
            Right.step(self, batch)
        else:
            list(pool.map(lambda data: hashlib.sha256(data).digest(), HALVES))

    return {"step": step}


def skips_updates(self, batch):
    """Every fifth: a proof has three."""
    self.taken = getattr(self, "taken", 0) + 1
    Right.forward(self, batch)
    Right.backward(self)
    if self.taken % 5:
        Right.update(self)


def begins_another(self):
    self._rule = self._rule._replace(momentum=0.5)


def heads(data):
    data["heads"][0]["weight"] = 1.0


def keeps_its_batch(self, batch):
    self.kept = getattr(self, "kept", batch)
    Right.step(self, self.kept)


def forwards_its_first(self, batch):
    self.kept = getattr(self, "kept", batch)
    Right.forward(self, self.kept)


def sums_in_native_steps(self, batch):
    Right.forward(self, batch)
    sums(self)
    Right.update(self)


PROVEN = {  # mistake: (how, the words that the reason begins with)
    "weight decay": (rule(weight_decay=0.0), "staged parameter of fc2.weight is off by"),
    "weight decay apart": (instead("update", decay_apart), "staged parameter of fc2.weight is off by"),
    "momentum": (rule(momentum=0.0), "staged parameter of fc2.weight is off by"),
    "learning rate": (rule(lr=RULE.lr * 1.001), "staged parameter of fc2.weight is off by"),
    "rebuilt with an old velocity": (
        instead("build", keeps_its_velocity),
        "first native movement of fc2.weight is off by",
    ),
    "native steps": (given("step", brighter), "first native movement of fc2.weight is off by"),
    "two updates": (instead("step", steps_twice), "first native movement of fc2.weight is off by"),
    "native steps with the first batch": (instead("step", keeps_its_batch), "native parameter of fc2.weight is off by"),
    "staged iterations with the first batch": (
        instead("forward", forwards_its_first),
        "staged parameter of fc2.weight is",
    ),
    "native gradients summed": (
        instead("step", sums_in_native_steps),
        "first native movement of fc2.weight is off by",
    ),
    "no update": (instead("update", nothing), "staged parameter of fc2.weight is off by"),
    "no backward": (instead("backward", nothing), "gradient of fc2.bias is missing"),
    "gradients summed": (instead("backward", sums), "gradient of fc2.bias is off by 1 "),
    "backward of the LRN": (backward("norm1", lambda it: it * 1.1), "gradient of conv1.bias is off by"),
    "backward of a convolution": (backward("left", np.flip), "gradient of grouped.bias is off by"),
    "backward of an average": (backward("counted", np.zeros_like), "gradient of right.bias is off by"),
    "backward of a layer": (backward("fc1", np.zeros_like), "gradient of right.bias is off by"),
    "pixels": (given("to_device", brighter), "logits of logits is off by"),
    "labels": (
        given("to_device", lambda batch: batch._replace(labels=(batch.labels + 1) % 7)),
        "gradient of fc2.bias is off by",
    ),
    "loss": (answer("loss", lambda found: 2 * found), "staged loss of iteration 1 is off by 1 "),
    "no number": (answer("loss", lambda found: float("nan")), "staged loss of iteration 1 is not finite"),
    "logits' shape": (answer("logits", np.transpose), "logits of logits has shape (7, 8), not (8, 7)"),
    "a gradient": (answer("gradients", changed("fc1.bias", lambda it: it + 1e-3)), "gradient of fc1.bias is off by"),
    "no gradient": (answer("gradients", without("fc1.bias")), "gradient of fc1.bias is missing"),
    "a gradient's shape": (
        answer("gradients", changed("fc1.weight", np.transpose)),
        "gradient of fc1.weight has shape (144, 16), not (16, 144)",
    ),
    "a gradient of no number": (
        answer("gradients", changed("fc2.bias", lambda it: it * np.nan)),
        "gradient of fc2.bias holds numbers that are not finite",
    ),
    "running variance": (
        answer("parameters", changed("left_bn.running_var", lambda it: it * 0.98)),
        "statistics of left_bn.running_var is off by",
    ),
    "no running variance": (
        answer("parameters", without("left_bn.running_var")),
        "statistics of left_bn.running_var is missing",
    ),
    "momentum of the statistics": (layer("left_bn", momentum=0.1), "statistics of left_bn.running_mean"),
    "epsilon": (layer("left_bn", eps=1e-3), "logits of logits is off by"),
    "alpha of the LRN": (layer("norm1", alpha=1.5), "logits of logits is off by"),
    "k of the LRN": (layer("norm1", k=1.0), "logits of logits is off by"),
    "padding counted": (layer("uncounted", count_padding=True), "logits of logits is off by"),
    "padding not counted": (layer("hanging", count_padding=False), "logits of logits is off by"),
    "pooling": (layer("pool1", "avg_pool", kernel=3, stride=2, pad=1, ceil=True), "logits of logits is off by"),
    "no rectifier": (layer("sum_relu", "dropout", rate=0.0), "logits of logits is off by"),
    # Batch normalisation hides the scale of what comes in, so the logits are right.
    "a layer before a batch norm": (forward("left", lambda it: it * 1.1), "statistics of left_bn.running_"),
    "a layer further before it": (forward("grouped", lambda it: it * 1.1), "statistics of left_bn.running_"),
    "a layer before the side's head": (forward("side_pool", lambda it: it * 1.1), "gradient of side.weight is off by"),
    "weight of a head": (network(heads), "gradient of side.weight is off by"),
    "prediction of zeros": (answer("predict", np.zeros_like), "predict of logits is off by 1 "),
    "prediction by the batch": (instead("predict", trains), "predict of logits is off by"),
    "parameters": (answer("parameter_count", lambda found: found + 1), "parameter_count is"),
    "multiply-accumulates": (answer("macs", lambda found: 2 * found), "macs is"),
}
BEHAVING = {
    "prediction with dropout": (instead("predict", trains), "predict: without dropout"),
    "drops what is to be kept": (layer("drop", rate=0.75), "forward: dropout of rate 0.25 drops 0.7"),
    "a rate a bit off": (layer("drop", rate=0.35), "forward: dropout of rate 0.25 drops 0.3"),
    "no dropout": (layer("drop", rate=0.0), "forward: dropout of rate 0.25 drops 0.000"),
    "no dropout in native steps": (instead("step", with_its_own_dropout), "step: dropout of rate 0.25 drops 0.000"),
    "no scale": (dropout(forward=unscaled), "forward: what dropout keeps is scaled by 1.000, not by"),
    "the same mask": (dropout(forward=reseeded), "forward: a step drops the same numbers as the step before"),
    "step_alone exchanges": (instead("step_alone", Right.step), "step_alone: gradients of other devices arrived"),
    "gradients where native steps dropped": (
        instead("step", passes_all_in_native_steps),
        "step: dropout passes gradients where it dropped",
    ),
    "step_alone exchanges first weights": (
        instead("step_alone", adds_first_weights),
        "step_alone: gradients of other devices arrived",
    ),
    "step_alone idles": (instead("step_alone", nothing), "step_alone: the step trains nothing"),
    "step_alone sends": (
        instead("step_alone", sends_in_vain),
        "step_alone: 16384 bytes were sent to other processes in two steps",
    ),
    "step_alone sends by shared memory": (
        instead("step_alone", shares_in_vain),
        "step_alone: 16384 bytes shared with other processes changed in two steps",
    ),
}
ALONE = {
    "backward ignores the mask": (
        dropout(backward=lambda self, kept, gradient: [gradient]),
        "backward: dropout passes gradients where forward dropped",
    )
}
THREADED = {"one thread of two": (hashes_in(1), "step: of 2 threads 1.")}
CROWDED = {"two threads of one": (hashes_in(2), ("1.", "2."))}
TRAINED = {
    "an update skipped now and then": (instead("step", skips_updates), "train: the loss after epoch 1 is"),
    "another rule in training": (instead("begin_training", begins_another), "train: the loss after epoch 1 is"),
}
MISTAKES = {**PROVEN, **BEHAVING, **ALONE, **THREADED, **CROWDED, **TRAINED}
PAGE = Path(__file__).parents[2] / "docs" / "planted-mistakes.json"
MEASURED = re.compile(r"off by \S+|\d+\.\d+")  # other libraries give other last digits


def caught(mistake, problems, words):
    """It is found, by these words first, and the page tells the first problem; of no mistake nothing is found."""
    assert bool(problems) == (mistake != "none"), problems
    if problems:
        first = problems[0]
        assert first.startswith(words), problems
        told = rows()[mistake]
        assert MEASURED.sub("#", told) == MEASURED.sub("#", first), f"{PAGE.name}: {mistake}: {first}"


@cache
def rows():
    """By mistake: the first problem, as the page has it."""
    return json.loads(PAGE.read_text())


class Outbox:
    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def progress(self, **where):
        pass


def made(how, optimiser, threads=1, **knobs):
    asked = {"threads": threads, "batch": SAMPLES, "knobs": dict({"shards": 1}, **knobs)}
    return type("Mistaken", (Right,), how)(trainers.setup(precision="float64", optimiser=optimiser, **asked))


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle")
    evidence.write_oracle(made({}, RULE), probe.probe_graph(), SAMPLES, str(folder))
    return folder


@pytest.mark.parametrize("mistake", ["none", *PROVEN])
def test_a_proof_catches_and_names_it(mistake, oracle):
    probe.register()
    how, words = PROVEN.get(mistake, ({}, ""))
    found = evidence.prove(made(how, RULE), probe.probe_graph(), SAMPLES, str(oracle))
    sent = messages.decode(messages.encode(found))
    verdict = judge(Attempt("ok", "", {0: [sent]}, 1.0, {}), workloads()["probe"], tolerance("float64"))
    assert verdict.passed == (mistake == "none")
    caught(mistake, verdict.reason.split("; ") if verdict.reason else [], words)


@pytest.mark.parametrize("mistake", ["none", *BEHAVING, *ALONE])
def test_the_look_at_its_behaviour_catches_and_names_it(mistake):
    how, words = {**BEHAVING, **ALONE}.get(mistake, ({}, ""))
    devices = 1 if mistake in ALONE else 2
    trainer = made(how, SGD(1e-5, 0.0, 0.0), shards=devices)
    caught(mistake, behaviour.look_at(trainer, Behave(SAMPLES, devices), Outbox()), words)


@pytest.mark.parametrize("mistake", ["none", *THREADED])
def test_threads_that_do_nothing_are_noticed(mistake, monkeypatch):
    monkeypatch.setattr(behaviour, "LIMIT_S", 2.0)
    how, words = THREADED.get(mistake, (hashes_in(2), ""))
    problems = behaviour.look_at(made(how, SGD(1e-5, 0.0, 0.0), threads=2), Behave(SAMPLES, 1, True), Outbox())
    caught(mistake, problems, words)


@pytest.mark.parametrize("mistake", ["none", *TRAINED])
def test_the_pass_train_catches_and_names_it(mistake, tmp_path):
    how, words = TRAINED.get(mistake, ({}, ""))
    setup = trainers.setup(precision="float64", batch=SQUARES.batch, optimiser=SGD(SQUARES.lr, SQUARES.momentum, 0.0))
    squares(tmp_path / "squares.npz")
    graph, data = workloads()[SQUARES.workload].graph(), DataSet("arrays", str(tmp_path / "squares.npz"))
    task = Train(graph, SQUARES.training._replace(epochs=1), Schedule(), jobs.READ_ONCE, data)
    outbox = Outbox()
    train(type("Mistaken", (Right,), how)(setup), task, str(tmp_path), outbox)
    (found,) = messages.of_type(messages.Training, outbox.sent)
    problem, _, _ = strayed([epoch.loss for epoch in found.epochs]).partition("; ")  # where to look comes after it
    caught(mistake, [problem] if problem else [], words)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two threads at once take two cores")
@pytest.mark.parametrize("mistake", ["none", *CROWDED])
def test_a_native_pass_shows_more_threads_than_were_asked_for(mistake, monkeypatch):
    """By the processor time of its steps; a busy machine hides it: it is given several tries."""
    monkeypatch.setenv("STAGEBENCH_ATTEMPT", "of this test")
    how, words = CROWDED.get(mistake, (hashes_in(1), ""))
    trainer, batch, meter = made(how, RULE), Batch(np.zeros((1, 1)), np.zeros(1, np.int64)), noise.Meter()
    problems = []
    for _ in range(1 if mistake == "none" else 20):
        meter.begin()
        for _ in range(10):
            trainer.step(batch)
        use = meter.end()
        try:
            Measured()._threads_of(HostUse(**use._asdict()), Case("odd", "single", "probe"))
        except AssertionError as noticed:
            problems = [str(noticed)]
            break
    if not problems and use.busy_cpu_s - use.own_cpu_s > 0.5 * use.seconds:
        pytest.skip("others had a processor of two in every try")
    caught(mistake, problems, words)


def test_more_threads_than_were_asked_for_are_noticed():
    use = HostUse(seconds=2.0, busy_cpu_s=4.0, steal_cpu_s=0.0, cores=4, own_cpu_s=3.9)
    Measured()._threads_of(use, Case("odd", "single", "probe", Placement(threads=2)))
    with pytest.raises(AssertionError, match=r"1\.95 .*1 threads"):
        Measured()._threads_of(use, Case("odd", "single", "probe"))


def test_the_documentation_lists_them():
    assert list(rows()) == list(MISTAKES)
