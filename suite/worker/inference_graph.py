"""A trained network as inference computes it: what its answer needs, nothing random, normalisations folded away."""

from typing import List, Tuple

import numpy as np

from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph, Layer


def for_inference(graph: Graph, tensors: Arrays, fold: bool) -> Tuple[Graph, Arrays]:
    """Return the network with one head, the last, and its parameters and running statistics.

    `fold`: a batch normalisation whose input is a convolution that nothing else reads becomes part of its weights and
    bias, as experts do once statistics are fixed: y = (w*x + b - mean) * gain / sqrt(var + eps) + shift is linear.
    Both are then float64, which no rounding adds to.
    """
    data = graph.without_dropout().to_dict()
    data["heads"] = data["heads"][-1:]
    wanted = {data["heads"][0]["layer"]}
    for layer in reversed(graph.layers):
        if layer.name in wanted:
            owners = [name.rpartition(".")[0] for name in layer.shares.values()]  # of weights that it computes with
            wanted.update(layer.inputs, owners)
    data["layers"] = [layer for layer in data["layers"] if layer["name"] in wanted]
    whole = Graph.from_dict(data)
    found = dict(tensors)
    if fold:
        renamed = {}
        for conv, norm in foldable(whole):
            weight, bias = f"{conv.name}.weight", f"{conv.name}.bias"
            factor, shift = (found[f"{norm.name}.{role}"].astype(np.float64) for role in ("weight", "bias"))
            mean, variance = (found[f"{norm.name}.running_{each}"].astype(np.float64) for each in ("mean", "var"))
            factor = factor / np.sqrt(variance + norm.attrs["eps"])
            begin = found[bias].astype(np.float64) if bias in found else 0.0
            found[bias] = (begin - mean) * factor + shift
            found[weight] = found[weight] * factor[:, None, None, None]
            renamed[norm.name] = conv.name
        for layer in data["layers"]:
            layer["inputs"] = [renamed.get(name, name) for name in layer["inputs"]]
            if layer["name"] in renamed.values():
                layer["attrs"]["bias"] = True
        data["layers"] = [layer for layer in data["layers"] if layer["name"] not in renamed]
        whole = Graph.from_dict(data)
    names = [parameter.name for parameter in whole.parameters] + [name for name, _ in whole.buffers]
    return whole, {name: found[name] for name in names}


def foldable(graph: Graph) -> List[Tuple[Layer, Layer]]:
    """Return (convolution, the batch normalisation that is its only reader), none of them the answer's layer."""
    readers = {}  # type: dict[str, List[Layer]]
    for layer in graph.layers:
        for name in layer.inputs:
            readers.setdefault(name, []).append(layer)
    answer = graph.heads[-1].layer
    pairs = [(layer, readers.get(layer.name, [])) for layer in graph.layers if layer.kind == "conv"]
    return [
        (conv, after[0])
        for conv, after in pairs
        if len(after) == 1 and after[0].kind == "batch_norm" and answer not in (conv.name, after[0].name)
    ]
