"""A network as a layer graph: shapes, parameters, multiply-accumulates, gradient bytes.

Everything a framework could choose for itself is written out here: padding, the rounding of pooling, whether padding
counts in an average, the form of LRN, the momentum of batch normalisation. `stagebench.workloads.kinds` has the layer
kinds; `stagebench.workloads.build` is the convenient way to make a graph.

Standard library only.
"""

import hashlib
import json
from typing import Any, Dict, List, NamedTuple, Tuple

import stagebench.workloads.token_kinds  # noqa: F401 - registers its kinds
from stagebench.workloads import kinds
from stagebench.workloads.kinds import MAX_SIZE, Layer, Parameter, Shape, size

__all__ = ["Graph", "Head", "Layer", "Parameter", "Shape", "size"]


class Head(NamedTuple):
    """Logits and their share of the loss."""

    layer: str
    weight: float


DECAYS = ("all", "matrices")


class Graph:
    """Layers in an order in which each comes after its inputs; the heads carry the loss.

    The loss is the sum over heads of weight x mean softmax cross-entropy over the
    global batch, and over the tokens of a sample if each has a label.

    Weight decay shrinks all parameters, or with `decay` "matrices" those with two axes or more, axes of 1 not counted:
    neither biases nor the gains of a normalisation.
    """

    def __init__(self, name: str, input_shape: Shape, classes: int, decay: str = "all") -> None:
        """Make an empty graph whose only node is "input"; ValueError for impossible extents, classes or decay."""
        self.name, self.input_shape, self.classes = name, tuple(input_shape), classes
        if not isinstance(name, str) or not self.input_shape or not all(map(kinds.whole, (*input_shape, classes))):
            raise ValueError(
                f"{name!r} takes inputs of {self.input_shape!r} and tells {classes!r} classes apart; a name and "
                "whole numbers from 1 are wanted"
            )
        if size((*self.input_shape, classes)) > MAX_SIZE:
            raise ValueError(f"{name!r} takes inputs, or tells classes apart, of more than {MAX_SIZE} numbers")
        if decay not in DECAYS:
            raise ValueError(f"{name!r} has the decay {decay!r}; known: {', '.join(DECAYS)}")
        self.decay = decay
        self.layers: List[Layer] = []
        self.heads: List[Head] = []
        self._shapes: Dict[str, Shape] = {"input": self.input_shape}

    def add(self, name: str, kind: str, inputs: Tuple[str, ...], **attrs: Any) -> str:
        """Append a layer and return its name; ValueError for a name taken, a kind or an input unknown."""
        if name in self._shapes:
            raise ValueError(f"graph {self.name!r} has two layers named {name!r}")
        for wanted in inputs:
            if wanted not in self._shapes:
                raise ValueError(f"layer {name!r} reads {wanted!r}, which no earlier layer writes")
        layer = kinds.layer(name, kind, inputs, attrs, [self._shapes[wanted] for wanted in inputs])
        self._check_shared(layer)
        beside = next((each for each in self.layers if "input" in each.inputs), layer)
        if "input" in inputs and layer.takes_numbers != beside.takes_numbers:
            raise ValueError(
                f"layers {beside.name!r} ({beside.kind}) and {name!r} ({kind}) read the input, which cannot be the "
                "numbers of tokens for one and values for the other"
            )
        self.layers.append(layer)
        self._shapes[name] = layer.shape
        return name

    def _check_shared(self, layer: Layer) -> None:
        """Raise ValueError if a layer shares what no earlier one has, or what does not fit; note a table."""
        for name in layer.shares.values():
            there = {parameter.name: parameter.shape for parameter in self.parameters}
            wanted = (layer.shape[-1], layer.input_shapes[0][-1])
            if there.get(name) != wanted:
                found = f"has shape {there[name]!r}" if name in there else "is no earlier layer's"
                raise ValueError(f"layer {layer.name!r} ({layer.kind}) wants {name} of shape {wanted!r}, which {found}")
            layer.shares_table = any(each.takes_numbers and name in each.roles.values() for each in self.layers)

    def add_head(self, layer: str, weight: float = 1.0) -> None:
        """Attach a softmax cross-entropy loss to a layer of `classes` numbers, or of as many for each token.

        ValueError for any other, and for one whose labels have another shape than an earlier head's.
        """
        if layer not in self._shapes:
            raise ValueError(f"a head reads {layer!r}, which no layer writes")
        if len(self._shapes[layer]) > 2 or self._shapes[layer][-1] != self.classes:
            raise ValueError(f"head {layer!r} has shape {self._shapes[layer]!r}, not ({self.classes},)")
        if self.heads and self._shapes[layer][:-1] != self.label_shape:
            raise ValueError(f"heads {self.heads[0].layer!r} and {layer!r} want labels of different shapes")
        if not kinds.number(weight) or weight <= 0:
            raise ValueError(f"head {layer!r} weighs {weight!r}; it wants a number above 0")
        self.heads.append(Head(layer, weight))

    @property
    def label_shape(self) -> Shape:
        """The shape of a sample's labels: (), or (positions,) if every token has one."""
        return self._shapes[self.heads[0].layer][:-1] if self.heads else ()

    @property
    def vocabulary(self) -> int:
        """The input's numbers are whole ones, tokens, below this; 0: the input is values."""
        return min((layer.attrs["vocabulary"] for layer in self.layers if layer.takes_numbers), default=0)

    @property
    def parameters(self) -> List[Parameter]:
        """Every trainable tensor, in forward order."""
        return [parameter for layer in self.layers for parameter in layer.parameters]

    @property
    def buffers(self) -> List[Tuple[str, Shape]]:
        """(name, shape) of every running statistic, in forward order."""
        return [buffer for layer in self.layers for buffer in layer.buffers]

    @property
    def parameter_count(self) -> int:
        """Trainable numbers in the whole network."""
        return sum(layer.parameter_count for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward pass."""
        return sum(layer.macs for layer in self.layers)

    def gradient_bytes(self, itemsize: int = 4) -> int:
        """Return the bytes of one gradient exchange."""
        return sum(layer.gradient_bytes(itemsize) for layer in self.layers)

    def without_dropout(self) -> "Graph":
        """Return this graph with no random numbers, every dropout rate 0: a proof cannot compare masks."""
        data = self.to_dict()
        for layer, made in zip(data["layers"], self.layers):
            layer["attrs"].update(made.deterministic)
        return Graph.from_dict(data)

    def with_context(self, tokens: int) -> "Graph":
        """Return this network for samples of `tokens` tokens, named NAME@TOKENS, with the same parameters.

        ValueError if it reads no tokens, if a layer cannot take them, or if parameters would have other shapes.
        """
        if not self.vocabulary:
            raise ValueError(f"{self.name} reads no tokens, whose number could be another")
        data = dict(self.to_dict(), name=f"{self.name}@{tokens}", input_shape=[tokens])
        for layer, made in zip(data["layers"], self.layers):
            if "rows" in made.attributes:
                layer["attrs"]["rows"] = made.parameters[0].shape[1]
        graph = Graph.from_dict(data)
        if graph.parameters != self.parameters:
            raise ValueError(f"{self.name} has parameters whose shapes depend on the number of tokens")
        return graph

    def to_dict(self) -> dict:
        """Return a JSON-ready description; `from_dict` reads it back."""
        return {
            "name": self.name,
            "input_shape": list(self.input_shape),
            "classes": self.classes,
            **({} if self.decay == "all" else {"decay": self.decay}),  # a network's digest is older than this key
            "layers": [
                {"name": x.name, "kind": x.kind, "inputs": list(x.inputs), "attrs": dict(x.attrs)} for x in self.layers
            ],
            "heads": [{"layer": head.layer, "weight": head.weight} for head in self.heads],
        }

    @classmethod
    def from_dict(cls, data: dict) -> "Graph":
        """Rebuild a graph from `to_dict`'s result, with every check; ValueError names the place that is wrong."""
        place = "the graph"
        try:
            graph = cls(data["name"], tuple(data["input_shape"]), data["classes"], data.get("decay", "all"))
            layers, heads = data["layers"], data["heads"]
            for index, layer in enumerate(layers):
                place = f"layers[{index}]"
                graph.add(layer["name"], layer["kind"], tuple(layer["inputs"]), **layer["attrs"])
            for index, head in enumerate(heads):
                place = f"heads[{index}]"
                graph.add_head(head["layer"], head["weight"])
        except KeyError as error:
            raise ValueError(f"{place} has no key {error}")
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{place}: {error}")
        return graph

    @property
    def digest(self) -> str:
        """SHA-256 over the description: networks with equal digests are equal."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
