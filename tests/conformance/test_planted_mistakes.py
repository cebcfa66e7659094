"""An adapter that is right but for one mistake is caught, and the first words say by what.

The mistakes are planted in the reference, one a class; a proof and the look at its behaviour run in this process.
"""

import copy
import hashlib
import json
import math
import mmap
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from stagebench_conformance import probe
from stagebench_conformance.measured import SQUARES, Measured, squares, strayed

from stagebench.adapters.reference.base import ReferenceTrainer
from stagebench.adapters.reference.layers.parameterless import Dropout, Flatten
from stagebench.adapters.reference.layers.tokens import GELU, Attention, Embedding
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.plugins import workloads
from stagebench.suite.processes.attempt import Attempt
from stagebench.suite.proofs.judgement import judge
from stagebench.suite.proofs.make import DECAY
from stagebench.suite.proofs.tolerances import tolerance
from stagebench.suite.worker import behaviour, evidence, locate, messages, noise
from stagebench.suite.worker.case_parts import Schedule
from stagebench.suite.worker.contract import SGD, Adam, Batch
from stagebench.suite.worker.job import Behave, DataSet, Train
from stagebench.suite.worker.messages import HostUse
from stagebench.suite.worker.tasks import train
from stagebench.workloads.graph import Graph
from tests.support import jobs, trainers
from tests.support.sent import Nobody

SAMPLES = 8
HALVES = 2 * [bytes(1 << 24)]  # of a step's work
RULE = SGD(lr=0.05, momentum=0.9, weight_decay=DECAY)
ADAMW = Adam(1e-3, 0.9, 0.999, 1e-8, 0.05, decoupled=True, decays="matrices")


class Right(ReferenceTrainer):
    """Two shards stand for two devices; the step of one alone trains with its share."""

    def step_alone(self, batch):
        half, shards = len(batch.labels) // 2, self._shards
        self._shards = 1
        ReferenceTrainer.step(self, Batch(batch.inputs[:half], batch.labels[:half]))
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


def changed_layer(name, method, change):
    """A layer of another forward or backward."""

    def build(self, graph, weights):
        Right.build(self, graph, weights)
        (found,) = (each for each in self._network.layers if each.node.name == name)
        right = getattr(found, method)
        setattr(found, method, lambda *given: change(right(*given)))

    return {"build": build}


def forward(name, change):
    """Another output of that layer."""
    return changed_layer(name, "forward", lambda found: (change(found[0]), found[1]))


def backward(name, change):
    """Another gradient by the inputs of that layer."""
    return changed_layer(name, "backward", lambda found: list(map(change, found)))


def dropout(**methods):
    """Another layer than the reference's."""

    def build(self, graph, weights):
        Right.build(self, graph, weights)
        for each in self._network.layers:
            if isinstance(each, Dropout):
                each.__class__ = type("Mistaken", (Dropout,), methods)

    return {"build": build}


def another(name, **methods):
    """A layer whose class has other methods."""

    def build(self, graph, weights):
        Right.build(self, graph, weights)
        (found,) = (each for each in self._network.layers if each.node.name == name)
        found.__class__ = type("Mistaken", (type(found),), methods)

    return {"build": build}


def unscaled_scores(self, inputs):
    queries = inputs[0].copy()
    width = queries.shape[2] // 3
    queries[..., :width] *= (width / self.attrs["heads"]) ** 0.5
    return Attention.forward(self, [queries])


def epsilon_outside(self, inputs):
    x = inputs[0]
    deviation = x.std(axis=-1, keepdims=True) + self.attrs["eps"]
    normal = (x - x.mean(axis=-1, keepdims=True)) / deviation
    return self.weights["weight"] * normal + self.weights["bias"], (normal, deviation)


def exact(self, inputs):
    x = inputs[0]
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))), GELU.forward(self, inputs)[1]


def by_heads(it):
    """Rows (heads, 3, d) in place of (3, heads, d)."""
    return it.reshape(len(it), -1, 3, 3, it.shape[2] // 9).swapaxes(2, 3).reshape(it.shape)


def off_by_one(self, inputs):
    return inputs[0] + np.roll(self.weights["weight"], 1, axis=1)[:, : inputs[0].shape[1]], None


def loses_the_head_s_part(self, kept, dy):
    table, role = self.shared["weight"]
    return [dy @ table.weights[role]]


def loses_the_table_s_part(self, kept, dy):
    return [np.zeros(kept.shape)]


def averages_repeats(self, kept, dy):
    return Embedding.backward(self, kept, dy / np.bincount(kept.ravel())[kept][..., np.newaxis])


def keeps_the_last_repeat(self, kept, dy):
    gradient = np.zeros_like(self.weights["weight"])
    gradient[kept] = dy
    self.accumulate("weight", gradient)
    return [np.zeros(kept.shape)]


def untied(self, graph, weights):
    """The head has weights of its own, which start as the table's."""
    copied = {**weights, "head.weight": weights["embedding.weight"]}
    layer("head", "dense", out=graph.classes, bias=False)["build"](self, graph, copied)


def tied_to_a_copy(self, graph, weights):
    """Gradients reach the table, and updates do not reach the copy."""
    Right.build(self, graph, weights)
    table, role = self._network.layers[-1].shared["weight"]
    copied = copy.copy(table)
    copied.weights = copy.deepcopy(table.weights)
    self._network.layers[-1].shared["weight"] = copied, role


def sums_over_tokens(self, batch):
    """Where the mean over samples and tokens is asked for."""
    Right.forward(self, batch)
    tokens = batch.labels.shape[1]
    for index, run in enumerate(self._runs):
        seeds = {name: tokens * seed for name, seed in run.seeds.items()}
        self._runs[index] = run._replace(loss=tokens * run.loss, seeds=seeds)


def only_where(how):
    """The mistake, in the networks that have its layer."""
    if "build" not in how:
        return how

    def build(self, graph, weights):
        try:
            how["build"](self, graph, weights)
        except ValueError:  # there is none to change
            Right.build(self, graph, weights)

    return {**how, "build": build}


# --- the mistakes ----------------------------------------------------------------


def brighter(batch):
    return batch._replace(inputs=batch.inputs * 1.001)


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


def clipping(change):
    """Gradients that are clipped another way: `change(trainer, gradients)`."""

    def update(self):
        for name, tensor in change(self, self.gradients()).items():
            self._network.named("gradients")[name][...] = tensor
        proper, self._rule = self._rule, self._rule._replace(clip=0.0)
        Right.update(self)
        self._rule = proper

    return {"update": update}


def clipped(tensors, most):
    norm = np.sqrt(sum(np.square(each).sum() for each in tensors.values()))
    return {name: min(1.0, most / norm) * each for name, each in tensors.items()}


def each_tensor(self, gradients):
    most = self._rule.clip
    return {name: clipped({name: each}, most)[name] for name, each in gradients.items()}


def with_the_decay(self, gradients):
    decay = {name: DECAY * each for name, each in self._network.named("weights").items()}
    found = clipped({name: each + decay[name] for name, each in gradients.items()}, self._rule.clip)
    return {name: each - decay[name] for name, each in found.items()}


def each_rank(self, gradients):
    """Two ranks clip their own gradients, and exchange what is left."""
    runs, halves = self._runs, []
    for own in (slice(SAMPLES // 2), slice(SAMPLES // 2, SAMPLES)):
        Right.forward(self, Batch(*(each[own] for each in self.kept)))
        Right.backward(self)
        halves.append(clipped(self.gradients(), self._rule.clip))
    self._runs = runs
    return {name: sum(half[name] for half in halves) / 2 for name in gradients}


def keeps(self, batch):
    self.kept = batch
    Right.forward(self, batch)


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
    pool, all_of_them = ThreadPoolExecutor(threads), Barrier(threads, timeout=300)

    def hashed(data):
        all_of_them.wait()  # on a busy machine the first one awake would do the others' part, too
        return hashlib.sha256(data).digest()

    def step(self, batch):
        if batch.inputs.shape[1:] == behaviour.graph().input_shape:
            Right.step(self, batch)
        else:
            list(pool.map(hashed, HALVES))

    return {"step": step}


def put_off(self, batch):
    """The batch of a forward or step that is not computed yet."""
    self.waiting = batch


def catching_up(method):
    """Forward first, if it was put off."""

    def caught(self, *given):
        waiting, self.waiting = getattr(self, "waiting", None), None
        if waiting is not None:
            Right.forward(self, waiting)
        return getattr(Right, method)(self, *given)

    return caught


def anew(method):
    """Forward first, at every call."""

    def computed(self, *given):
        Right.forward(self, self.waiting)
        return getattr(Right, method)(self, *given)

    return computed


def backward_too(self):
    Right.backward(self)
    Right.update(self)


def stepping(self):
    waiting, self.waiting = getattr(self, "waiting", None), None
    if waiting is not None:
        Right.step(self, waiting)
    return Right.parameters(self)


def all_but_backward(self, batch):
    Right.forward(self, batch)
    self.waiting = batch


def updating(self):
    """Backward and update, if a step put them off."""
    waiting, self.waiting = getattr(self, "waiting", None), None
    if waiting is not None:
        Right.backward(self)
        Right.update(self)
    return Right.parameters(self)


def waits(self):
    self.late = True


def after_the_update(self, *given):
    """Forward, or return the parameters, after an update that was put off."""
    if getattr(self, "late", False):
        self.late = False
        self.working(Right.update)(self)
    return Right.forward(self, *given) if given else Right.parameters(self)


def keeps_its_statistics(self, graph, weights):
    before = self._network.named("statistics") if hasattr(self, "_network") else {}
    Right.build(self, graph, weights)
    for name, there in self._network.named("statistics").items():
        there[...] = before.get(name, there)


def channels_last(self, inputs):
    return Flatten.forward(self, [np.moveaxis(inputs[0], 1, -1)])


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


PROVEN = {  # mistake: how it is planted; PAGE has what finds it
    "weight decay": rule(weight_decay=0.0),
    "weight decay apart": {"update": decay_apart},
    "momentum": rule(momentum=0.0),
    "learning rate": rule(lr=RULE.lr * 1.001),
    "rebuilt with an old velocity": {"build": keeps_its_velocity},
    "rebuilt with old statistics": {"build": keeps_its_statistics},
    "native steps": given("step", brighter),
    "two updates": {"step": steps_twice},
    "native steps with the first batch": {"step": keeps_its_batch},
    "staged iterations with the first batch": {"forward": forwards_its_first},
    "native gradients summed": {"step": sums_in_native_steps},
    "no update": {"update": nothing},
    "no backward": {"backward": nothing},
    "gradients summed": {"backward": sums},
    "backward of the LRN": backward("norm1", lambda it: it * 1.1),
    "backward of a convolution": backward("left", np.flip),
    "backward of an average": backward("counted", np.zeros_like),
    "backward of a layer": backward("fc1", np.zeros_like),
    "pixels": given("to_device", brighter),
    "labels": given("to_device", lambda batch: batch._replace(labels=(batch.labels + 1) % 7)),
    "loss": answer("loss", lambda found: 2 * found),
    "no number": answer("loss", lambda found: float("nan")),
    "logits' shape": answer("logits", np.transpose),
    "a gradient": answer("gradients", changed("fc1.bias", lambda it: it + 1e-3)),
    "no gradient": answer("gradients", without("fc1.bias")),
    "a gradient's shape": answer("gradients", changed("fc1.weight", np.transpose)),
    "a gradient of no number": answer("gradients", changed("fc2.bias", lambda it: it * np.nan)),
    "running variance": answer("parameters", changed("left_bn.running_var", lambda it: it * 0.98)),
    "no running variance": answer("parameters", without("left_bn.running_var")),
    "momentum of the statistics": layer("left_bn", momentum=0.1),
    "epsilon": layer("left_bn", eps=1e-3),
    "alpha of the LRN": layer("norm1", alpha=1.5),
    "k of the LRN": layer("norm1", k=1.0),
    "the usual beta of the LRN": layer("norm1", beta=0.75),
    "padding counted": layer("uncounted", count_padding=True),
    "padding not counted": layer("hanging", count_padding=False),
    "pooling": layer("pool1", "avg_pool", kernel=3, stride=2, pad=1, ceil=True),
    "no rectifier": layer("sum_relu", "dropout", rate=0.0),
    # Batch normalisation hides the scale of what comes in, so the logits are right.
    "a layer before a batch norm": forward("left", lambda it: it * 1.1),
    "a layer further before it": forward("grouped", lambda it: it * 1.1),
    "a layer before the side's head": forward("side_pool", lambda it: it * 1.1),
    "weight of a head": network(heads),
    "prediction of zeros": answer("predict", np.zeros_like),
    "prediction by the batch": {"predict": trains},
    "parameters": answer("parameter_count", lambda found: found + 1),
    "multiply-accumulates": answer("macs", lambda found: 2 * found),
}
TOKENS = {  # ... of transformers
    "scores not scaled": another("whole_attention", forward=unscaled_scores),
    "mask shifted by one": another("causal_attention", hidden=lambda self, t: np.triu(np.ones((t, t), dtype=bool), 2)),
    "no mask": layer("causal_attention", causal=False),
    "heads before queries, keys and values": forward("whole_qkv", by_heads),
    "epsilon beside the deviation": another("norm", forward=epsilon_outside),
    "another epsilon of a norm": layer("whole_norm1", eps=1e-3),
    "the exact GELU": another("whole_gelu", forward=exact),
    "positions off by one": another("positions", forward=off_by_one),
    "class token last": forward("class_token", lambda it: np.roll(it, -1, axis=1)),
    "patches by column": forward("tokens", lambda it: it[:, [0, 3, 1, 4, 2, 5]]),
    "another token's answer": layer("middle", position=0),
    "backward of the softmax": backward(
        "whole_attention", lambda it: it * np.repeat([1.0, 0.9, 1.0], it.shape[2] // 3)
    ),
    "decay in the gradient": rule(decoupled=False),
    "decay of biases, too": rule(decays="all"),
    "decay times the rate twice": rule(weight_decay=ADAMW.weight_decay * ADAMW.lr),
}
TEXT = {  # ... of text
    "tied head's gradient lost": another("head", backward=loses_the_head_s_part),
    "table's gradient lost": another("embedding", backward=loses_the_table_s_part),
    "repeated tokens averaged": another("embedding", backward=averages_repeats),
    "last of repeated tokens": another("embedding", backward=keeps_the_last_repeat),
    "head not tied": {"build": untied},
    "head tied to a copy": {"build": tied_to_a_copy},
    "positions of text off by one": another("positions", forward=off_by_one),
    "labels shifted by one": given("to_device", lambda it: it._replace(labels=np.roll(it.labels, 1, axis=1))),
    "loss summed over tokens": {"forward": sums_over_tokens},
    "no clipping": rule(clip=0.0),
    "clipping of each tensor": clipping(each_tensor),
    "clipping with the decay": clipping(with_the_decay),
    "clipping on each rank": {"forward": keeps, **clipping(each_rank)},
}
PROOFS = {"probe": (RULE, PROVEN), "probe_tokens": (ADAMW, TOKENS), "probe_text": (RULE._replace(clip=0.5), TEXT)}
BEHAVING = {
    "prediction with dropout": {"predict": trains},
    "drops what is to be kept": layer("drop", rate=0.75),
    "a rate a bit off": layer("drop", rate=0.35),
    "no dropout": layer("drop", rate=0.0),
    "no dropout in native steps": {"step": with_its_own_dropout},
    "no scale": dropout(forward=unscaled),
    "the same mask": dropout(forward=reseeded),
    "step_alone exchanges": {"step_alone": Right.step},
    "an update in backward": {"backward": backward_too, "update": nothing},
    "gradients where native steps dropped": {"step": passes_all_in_native_steps},
    "step_alone exchanges first weights": {"step_alone": adds_first_weights},
    "step_alone idles": {"step_alone": nothing},
    "step_alone sends": {"step_alone": sends_in_vain},
    "step_alone sends by shared memory": {"step_alone": shares_in_vain},
}
ALONE = {"backward ignores the mask": dropout(backward=lambda self, kept, gradient: [gradient])}
LAZY = {
    "forward left to its results": {
        "forward": put_off,
        **{name: catching_up(name) for name in ("loss", "logits", "backward")},
    },
    "forward left to each question": {
        "forward": put_off,
        **{name: anew(name) for name in ("loss", "logits", "backward")},
    },
    "backward left to update": {"backward": nothing, "update": backward_too},
    "steps that are only queued": {"step": put_off, "parameters": stepping},
    "steps whose backward is put off": {"step": all_but_backward, "parameters": updating},
    "updates that are put off": {"update": waits, "forward": after_the_update, "parameters": after_the_update},
}
THREADED = {"one thread of two": (hashes_in(1), 2), "two threads where one was asked for": (hashes_in(2), 1)}
CROWDED = {"two threads of one": hashes_in(2)}
TRAINED = {
    "an update skipped now and then": {"step": skips_updates},
    "another rule in training": {"begin_training": begins_another},
}
MISTAKES = {**PROVEN, **TOKENS, **TEXT, **BEHAVING, **ALONE, **LAZY, **THREADED, **CROWDED, **TRAINED}
PAGE = Path(__file__).parents[2] / "docs" / "planted-mistakes.json"
MEASURED = re.compile(r"off by \S+|\d+\.\d+")  # other libraries give other last digits


def caught(mistake, problems):
    """It is found, and first by the problem of the page, with figures near to it; of no mistake nothing is found."""
    assert bool(problems) == (mistake != "none"), problems
    if problems:
        told, first = rows()[mistake], problems[0]
        assert MEASURED.sub("#", told) == MEASURED.sub("#", first), f"{PAGE.name}: {mistake}: {first}"
        page, measured = ([float(each.split()[-1]) for each in MEASURED.findall(text)] for text in (told, first))
        assert measured == pytest.approx(page, rel=0.5), f"{PAGE.name}: {mistake}: {first}"


def looked(trainer, task):
    return list(behaviour.Look(trainer, task, Nobody()).problems())


@cache
def rows():
    """By mistake: the first problem, as the page has it."""
    return json.loads(PAGE.read_text())


def made(how, optimiser, threads=1, **knobs):
    asked = {"threads": threads, "batch": SAMPLES, "knobs": dict({"shards": 1}, **knobs)}
    return type("Mistaken", (Right,), how)(trainers.setup(precision="float64", optimiser=optimiser, **asked))


@pytest.fixture(scope="module")
def proof(request, tmp_path_factory):
    """A probe, and the folder of its oracle."""
    probe.register()
    workload, folder = workloads()[request.param], tmp_path_factory.mktemp(request.param)
    evidence.write_oracle(made({}, PROOFS[workload.name][0]), workload.graph(), SAMPLES, str(folder))
    return workload, folder


@pytest.mark.parametrize(
    ("proof", "mistake"),
    [(name, mistake) for name, (_, planted) in PROOFS.items() for mistake in ["none", *planted]],
    indirect=["proof"],
)
def test_a_proof_catches_and_names_it(proof, mistake):
    """A trainer's proof is refused for the mistake, and for nothing else."""
    workload, oracle = proof
    optimiser, planted = PROOFS[workload.name]
    found = evidence.prove(made(planted.get(mistake, {}), optimiser), workload.graph(), SAMPLES, str(oracle))
    told = messages.decode(messages.encode(found))
    verdict = judge(Attempt("ok", "", {0: [told]}, 1.0, {}), workload, tolerance("float64"))
    assert verdict.passed == (mistake == "none")
    caught(mistake, verdict.reason.split("; ") if verdict.reason else [])


@pytest.mark.parametrize("mistake", ["none", *BEHAVING, *ALONE])
def test_the_look_at_its_behaviour_catches_and_names_it(mistake):
    devices = 1 if mistake in ALONE else 2
    trainer = made({**BEHAVING, **ALONE}.get(mistake, {}), SGD(1e-5, 0.0, 0.0), shards=devices)
    looks = [name for name in Behave(1, 1).looks if name not in ("laziness", "threads")]
    caught(mistake, looked(trainer, Behave(SAMPLES, devices, looks)))


class Worked:
    """A clock that goes by the layers that were computed, each way: on a busy machine as on another."""

    def __init__(self):
        self.now = 0.0

    def process_time(self):
        return self.now

    def counting(self, compute):
        def computed(*given):
            self.now += 1.0
            return compute(*given)

        return computed

    def build(self, trainer, graph, weights):
        Right.build(trainer, graph, weights)
        for each in trainer._network.layers:
            each.forward, each.backward = self.counting(each.forward), self.counting(each.backward)


@pytest.mark.parametrize("mistake", ["none", *LAZY])
def test_work_that_is_put_off_is_noticed(mistake, monkeypatch):
    clock = Worked()
    monkeypatch.setattr(behaviour.time, "process_time", clock.process_time)
    build = {"build": lambda self, graph, weights: clock.build(self, graph, weights)}
    worked = {"update": clock.counting(Right.update), "working": staticmethod(clock.counting)}
    trainer = made({**worked, **LAZY.get(mistake, {}), **build}, SGD(1e-5, 0.0, 0.0))
    caught(mistake, looked(trainer, Behave(2, 1, ["laziness"])))


@pytest.mark.parametrize("mistake", [1, 2, *THREADED])
def test_threads_are_as_many_as_were_asked_for(mistake, monkeypatch):
    monkeypatch.setattr(behaviour, "LIMIT_S", 2.0)
    how, threads = THREADED.get(mistake) or (hashes_in(mistake), mistake)
    trainer = made(how, SGD(1e-5, 0.0, 0.0), threads=threads)
    problems = looked(trainer, Behave(SAMPLES, 1, ["threads"]))
    caught(mistake if mistake in THREADED else "none", problems)


CUTS = {  # by mistake: how the sentence on the first wrong layer begins
    "none": "",
    "no rectifier": "the first wrong layer is sum_relu (relu, which gives 12 x 6 x 5): its output",
    "alpha of the LRN": "the first wrong layer is norm1 (lrn, ",
    "epsilon": "the first wrong layer is left_bn (batch_norm, ",
    "padding counted": "the first wrong layer is uncounted (avg_pool, ",
    "momentum of the statistics": "the first wrong layer is left_bn (batch_norm, which gives 12 x 6 x 5): its running",
    "backward of the LRN": "the first wrong layer is norm1 (lrn, which gives 8 x 10 x 9): the gradient that its",
    "labels": "a network of flatten and dense layers alone is wrong already: ",
    "weight of a head": "",
}
TOKEN_CUTS = {
    "none": "",
    "scores not scaled": "the first wrong layer is whole_attention (attention, which gives 7 x 12): its output",
    "mask shifted by one": "the first wrong layer is causal_attention (attention, ",
    "no mask": "the first wrong layer is causal_attention (attention, ",
    "heads before queries, keys and values": "the first wrong layer is whole_qkv (qkv, ",
    "epsilon beside the deviation": "the first wrong layer is norm (layer_norm, ",
    "the exact GELU": "the first wrong layer is whole_gelu (gelu, ",
    "positions off by one": "the first wrong layer is positions (positions, ",
    "class token last": "the first wrong layer is class_token (class_token, ",
    "patches by column": "the first wrong layer is tokens (tokens, ",
    "another token's answer": "the first wrong layer is middle (select, ",
    "backward of the softmax": "the first wrong layer is whole_attention (attention, which gives 7 x 12): the gradient",
    "decay times the rate twice": "",
}
TEXT_CUTS = {
    "none": "",
    "tied head's gradient lost": "the first wrong layer is head (tied, which gives 8 x 11): the gradient that its",
    "table's gradient lost": "the first wrong layer is embedding (embedding, which gives 8 x 12): the gradient of emb",
    "repeated tokens averaged": "the first wrong layer is embedding (embedding, ",
    "clipping on each rank": "",
}


@pytest.fixture(scope="module")
def first_wrong(tmp_path_factory):
    """The sentence on the first wrong layer of a probe, of which every cut is written once."""
    probe.register()
    folders = {}

    def found(name, how):
        graph, optimiser = workloads()[name].graph(), PROOFS[name][0]
        if name not in folders:
            folders[name] = str(tmp_path_factory.mktemp(name))
            locate.write_layers(made({}, optimiser), graph, SAMPLES, folders[name])
        return "".join(locate.first_wrong_layer(made(only_where(how), optimiser), graph, SAMPLES, folders[name]))

    return found


@pytest.mark.parametrize(
    ("name", "mistake", "begins"),
    [
        (name, *each)
        for name, cuts in (("probe", CUTS), ("probe_tokens", TOKEN_CUTS), ("probe_text", TEXT_CUTS))
        for each in cuts.items()
    ],
)
def test_the_first_wrong_layer_is_named(name, mistake, begins, first_wrong):
    found = first_wrong(name, PROOFS[name][1].get(mistake, {}))
    assert found.startswith(begins)
    assert bool(found) == bool(begins)


def test_a_wrong_order_of_channels_is_named(first_wrong):
    found = first_wrong("probe", another("cut_flat", forward=channels_last))
    assert found.startswith("the first wrong layer is a flatten "), found


def test_a_layer_that_cannot_be_joined_is_named(first_wrong):
    """Its output has another shape, which the layer after it meets: the framework's own words name neither."""
    found = first_wrong("probe", forward("pool1", lambda it: it[:, :, 1:]))
    assert found.startswith("the first wrong layer is pool1 (max_pool, which gives 8 x 6 x 5): ValueError: "), found


@pytest.mark.parametrize("mistake", ["none", *TRAINED])
def test_the_pass_train_catches_and_names_it(mistake, tmp_path):
    setup = trainers.setup(precision="float64", batch=SQUARES.batch, optimiser=SGD(SQUARES.lr, SQUARES.momentum, 0.0))
    squares(tmp_path / "squares.npz")
    graph, data = workloads()[SQUARES.workload].graph(), DataSet("arrays", str(tmp_path / "squares.npz"))
    task = Train(graph, SQUARES.training._replace(epochs=1), Schedule(), jobs.READ_ONCE, data)
    outbox = Nobody()
    outbox.folder = str(tmp_path)
    train(type("Mistaken", (Right,), TRAINED.get(mistake, {}))(setup), task, outbox)
    (found,) = messages.of_type(messages.Training, outbox.sent)
    problem, _, _ = strayed([epoch.loss for epoch in found.epochs]).partition("; ")  # where to look comes after it
    caught(mistake, [problem] if problem else [])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two threads at once take two cores")
@pytest.mark.parametrize("mistake", ["none", *CROWDED])
def test_a_native_pass_shows_more_threads_than_were_asked_for(mistake, monkeypatch):
    """By the processor time of its steps; a busy machine hides it: it is given several tries."""
    monkeypatch.setenv("STAGEBENCH_ATTEMPT", "of this test")
    trainer, meter = made(CROWDED.get(mistake, hashes_in(1)), RULE), noise.Meter()
    batch = Batch(np.zeros((1, 1)), np.zeros(1, np.int64))
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
    caught(mistake, problems)


def test_more_threads_than_were_asked_for_are_noticed():
    use = HostUse(seconds=2.0, busy_cpu_s=4.0, steal_cpu_s=0.0, cores=4, own_cpu_s=3.9)
    Measured()._threads_of(use, Case("odd", "single", "probe", Placement(threads=2)))
    with pytest.raises(AssertionError, match=r"1\.95 .*1 threads"):
        Measured()._threads_of(use, Case("odd", "single", "probe"))


def test_the_documentation_lists_them():
    assert list(rows()) == list(MISTAKES)
