"""Canonical initial weights: the same numbers for every framework, from a fixed seed.

Each tensor has its own stream, keyed by its name, so that adding a layer changes no
other. Numbers are drawn in double and rounded: NumPy's float32 streams are not the same
in 1.19 (the last for Python 3.6) and in later releases, its double ones are. The digest
of what was drawn travels with every proof: should a NumPy release ever change its
streams, the proof shows it.

NumPy 1.19 or newer.
"""

import hashlib
import math
import zlib
from typing import Any, Dict, Iterator, Tuple

import numpy as np

from stagebench.workloads.graph import Graph, Parameter
from stagebench.workloads.kinds import Add

SEED = 20120906


def draw(parameter: Parameter, seed: int = SEED) -> np.ndarray:
    """Return a float32 tensor in canonical layout; ValueError for an unknown initialiser."""
    kind, shape = parameter.init["kind"], parameter.shape
    if kind == "constant":
        return np.full(shape, parameter.init["value"], dtype=np.float32)
    stream = np.random.Generator(np.random.PCG64([seed, zlib.crc32(parameter.name.encode())]))
    if kind == "uniform":
        return ((stream.random(shape) * 2 - 1) * parameter.init["bound"]).astype(np.float32)
    receptive = int(np.prod(shape[2:]))
    fan_in, fan_out = (shape[1] if len(shape) > 1 else 1) * receptive, shape[0] * receptive
    if kind == "xavier":
        bound = math.sqrt(3.0 / fan_in)
        return ((stream.random(shape) * 2 - 1) * bound).astype(np.float32)
    stds: Dict[str, Any] = {
        "gaussian": parameter.init.get("std"),
        "he": math.sqrt(2.0 / fan_in),
        "he_fan_out": math.sqrt(2.0 / fan_out),
    }
    if kind not in stds:
        raise ValueError(
            f"parameter {parameter.name!r} has the unknown initialiser {kind!r}; known: constant, uniform, "
            "xavier, gaussian, he, he_fan_out"
        )
    drawn = stream.standard_normal(shape)
    drawn *= stds[kind]
    return drawn.astype(np.float32)


def initial(graph: Graph, seed: int = SEED) -> Iterator[Tuple[str, np.ndarray]]:
    """Yield (name, float32 tensor) of each parameter: all of AlexNet's would fill 240 MB."""
    for parameter in graph.parameters:
        yield parameter.name, draw(parameter, seed)


def for_proof(graph: Graph) -> Dict[str, np.ndarray]:
    """Return the initial weights, better conditioned: the last gain of every residual branch is a quarter.

    And queries, keys and values are larger: as initialised, every token looks at all others nearly alike.

    As initialised, every block of a residual network doubles its variance and the gradient
    at ResNet-50's first layer has norm 300: rounding is amplified tenfold and three updates
    scatter. Any weights prove identity, so a proof takes these.
    """
    drawn = dict(initial(graph))
    by_name = {layer.name: layer for layer in graph.layers}
    for layer in graph.layers:
        branch = by_name.get(layer.inputs[0])
        gain = f"{branch.name}.weight" if branch is not None and isinstance(layer, Add) else ""
        if gain in drawn and drawn[gain].ndim == 1:  # a normalisation's
            drawn[gain] *= np.float32(0.25)
        if layer.sharpened != 1.0:
            drawn[f"{layer.name}.weight"] *= np.float32(layer.sharpened)
    return drawn


def digest(weights: Dict[str, np.ndarray]) -> str:
    """SHA-256 over names, shapes and bytes, in name order."""
    whole = hashlib.sha256()
    for name in sorted(weights):
        whole.update((f"{name} {weights[name].shape!r}").encode())
        whole.update(np.ascontiguousarray(weights[name]).tobytes())
    return whole.hexdigest()
