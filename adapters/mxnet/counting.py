"""Multiply-accumulates, counted on MXNet's own graph.

Oldest Python: 3.6.
"""

import json
from typing import Any, Tuple

import mxnet as mx
import numpy as np

COUNTED = ("Convolution", "FullyConnected")


def macs(net: Any, shape: Tuple[int, ...]) -> int:
    """Of one sample's forward pass through a block that takes images of `shape`.

    Every number that a convolution or a dense layer gives costs the products of one
    filter: the weight's shape less its first extent, as MXNet infers it.
    """
    symbol = mx.sym.Group(list(net(mx.sym.var("data"))))
    internals = symbol.get_internals()
    _, shapes, _ = internals.infer_shape(data=(1,) + tuple(shape))
    by_name = dict(zip(internals.list_outputs(), shapes))
    nodes = json.loads(symbol.tojson())["nodes"]
    total = 0
    for node in nodes:
        if node["op"] in COUNTED:
            weight = nodes[node["inputs"][1][0]]["name"]
            total += int(np.prod(by_name[node["name"] + "_output"])) * int(np.prod(by_name[weight][1:]))
    return total
