"""The first layer that is wrong: the network is cut after each layer in turn, and compared with the oracle's.

All layers but the last were right in the cuts before, so the mistake is the last one's, in the framework or in how it
is called. A dense layer ends each cut, after a flatten layer if its input has several dimensions. The oracle's results
are a file of arrays for each cut, `N.npz`.
"""

from typing import List

import numpy as np

from stagebench.suite.worker.evidence import SEED, distance
from stagebench.suite.worker.feed import share, synthetic
from stagebench.suite.worker.trainer import Arrays, Trainer
from stagebench.workloads.graph import Graph
from stagebench.workloads.weights import for_proof

FLAT, HEAD, CLASSES = "cut_flat", "cut_head", 4  # a few classes: after a first convolution a dense layer is large
ORDERED = -1  # the cut before the one without a layer
ALONE = {  # what a cut without any of the network's layers shows
    ORDERED: "a network of flatten and dense layers alone is wrong already",
    0: "the first wrong layer is a flatten (of channels, rows and columns, in this order)",
}
FAR, FAR_IN_SHORT = {"float64": 1e-6, "float32": 1e-4}, 5e-2  # relative errors by precision: most mistakes are larger


def cut(graph: Graph, layers: int) -> Graph:
    """Return the network that ends after that many layers, with those that the last one reads.

    Without a layer it is another network, whose images have several channels, so that a flatten layer which mixes them
    up shows; or ORDERED, whose flatten layer cannot.
    """
    before = graph.layers[: max(layers, 0)]
    if not before:
        graph = Graph(graph.name, (24, 1, 1) if layers == ORDERED else (2, 3, 4), graph.classes)
    wanted = {before[-1].name if before else "input"}
    for layer in reversed(before):
        if layer.name in wanted:
            wanted.update(layer.inputs)
            wanted.update(name.rpartition(".")[0] for name in layer.shares.values())
    found = Graph(f"cut-{layers}", graph.input_shape, CLASSES, graph.decay)
    shape, last = graph.input_shape, "input"
    for layer in before:
        if layer.name in wanted:
            last, shape = found.add(layer.name, layer.kind, layer.inputs, **layer.attrs), layer.shape
    if len(shape) > 1:
        last = found.add(FLAT, "flatten", (last,))
    found.add_head(found.add(HEAD, "dense", (last,), out=CLASSES))
    return found


def results(trainer: Trainer, graph: Graph, samples: int) -> Arrays:
    """Return the results of one staged iteration, those of the forward pass first."""
    trainer.build(graph, for_proof(graph))
    whole = synthetic(graph, samples * trainer.setup.replicas, SEED)
    trainer.forward(trainer.to_device(share(whole, trainer.setup.replica, samples)))
    found = {"logits": np.array(trainer.logits()), "loss": np.array([trainer.loss()])}
    trainer.backward()
    trainer.communicate()
    gradients = {f"gradient of {name}": np.array(tensor) for name, tensor in trainer.gradients().items()}
    trainer.update()
    parameters = trainer.parameters()
    found.update((f"statistics of {name}", np.array(parameters[name])) for name, _ in graph.buffers)
    found.update(gradients)
    return found


def write_layers(trainer: Trainer, graph: Graph, samples: int, folder: str) -> None:
    """Store the results of every cut."""
    graph = graph.without_dropout()
    for layers in range(ORDERED, len(graph.layers) + 1):
        found = results(trainer, cut(graph, layers), samples)
        np.savez(f"{folder}/{layers}.npz", **found)  # type: ignore[arg-type]


def first_wrong_layer(trainer: Trainer, graph: Graph, samples: int, folder: str) -> List[str]:
    """Return a sentence that names the first wrong layer; none if all cuts are right."""
    graph = graph.without_dropout()
    names = ["", FLAT, *(layer.name for layer in graph.layers)]
    far = FAR.get(trainer.setup.precision, FAR_IN_SHORT)
    for layers in range(ORDERED, len(graph.layers) + 1):
        with np.load(f"{folder}/{layers}.npz") as stored:
            theirs = {name: stored[name] for name in stored.files}
        try:
            ours = results(trainer, cut(graph, layers), samples)
            wrong = [name for name in theirs if name not in ours or not distance(ours[name], theirs[name]) <= far]
            problem = words(wrong, names[layers - ORDERED]) if wrong else ""
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem and layers in ALONE:
            return [f"{ALONE[layers]}: {problem}"]
        if problem:
            layer = graph.layers[layers - 1]
            shape = " x ".join(map(str, layer.shape))
            return [f"the first wrong layer is {layer.name} ({layer.kind}, which gives {shape}): {problem}"]
    return []


def words(wrong: List[str], last: str) -> str:
    """Say what of the last layer is wrong, from the names of results."""
    first = wrong[0]
    if first == "logits" and "loss" not in wrong:
        return "the logits, while the loss is right: look at `logits`"
    if first == "logits":
        return "its output" if last else "its output, so look at `to_device`, and at how dense layers are made"
    if first == "loss":
        return "the loss, though the logits are right"
    if first.startswith("statistics"):
        return "its running statistics"
    own = [name for name in wrong if name.startswith(f"gradient of {last or HEAD}.")]
    if not last and len(own) > 1:
        return "every gradient, so look at the backward of the loss"
    return f"the {own[0]}" if own else "the gradient that its backward gives to its input"
