"""Gradients summed through a key-value store, whole or in two bits a number.

Parameters go in forward order, the first with the highest priority: its weight is
wanted first. Nothing here waits: MXNet's engine starts each exchange when its gradient
is there.

With two bits every gradient is pushed as -threshold, 0 or +threshold, and the rest is kept
for the next push. A device's gradients are sums over its samples; these, not their means,
are compared with the threshold. Who compresses keeps a residual of its own: a worker of a
distributed store (what the servers send back is whole), every device of a "device" store.

Oldest Python: 3.6.
"""

from typing import Any, Dict, List, Optional, Sequence

import mxnet as mx

from suite.worker.contract import Setup

Arrays = List[List[Any]]  # by parameter and device

BITS = "2bit"
THRESHOLD = 0.5  # MXNet's default


class Sums:
    """Sums gradients over all devices of all workers (`pushpull` on a store without an optimiser)."""

    def __init__(self, store: Any, keys: Sequence[int], parameters: Sequence[Any]) -> None:
        """Take the keys; `parameters` are Gluon's, in forward order."""
        self._store, self._keys, self._parameters = store, list(keys), list(parameters)
        self._stand_ins: Arrays = []
        for key, parameter in zip(self._keys, self._parameters):
            self._store.init(key, parameter.list_data()[0])

    def in_place(self) -> Arrays:
        """Replace the gradients by their sums, and return them."""
        return self._exchange([parameter.list_grad() for parameter in self._parameters])

    def again(self) -> Arrays:
        """The same work once more, and the sums stay: zeros of the gradients' shapes are exchanged in place.

        The sums themselves would grow with every exchange, and to copy the gradients back
        before each would be timed as communication, which the native step does not do.
        """
        self._stand_ins = self._stand_ins or like([parameter.list_grad() for parameter in self._parameters])
        return self._exchange(self._stand_ins)

    def _exchange(self, arrays: Arrays) -> Arrays:
        for place, key in enumerate(self._keys):
            self._store.pushpull(key, arrays[place], out=arrays[place], priority=-place)
        return arrays


def like(arrays: Arrays) -> Arrays:
    """New arrays of the same shapes on the same devices."""
    return [[mx.nd.zeros_like(each) for each in devices] for devices in arrays]


def compression(setup: Setup) -> Optional[Dict[str, Any]]:
    """The arguments of `set_gradient_compression`; None where nothing is compressed.

    A lone device's gradients stay whole: compression is for what several exchange, and what is
    proven of such a case is what one device computes.
    """
    if setup.knobs.get("compression", "none") == "none" or setup.world * setup.devices == 1:
        return None
    return {"type": BITS, "threshold": float(setup.knobs.get("threshold", THRESHOLD))}


def described(compressed: Optional[Dict[str, Any]], setup: Setup) -> str:
    """What `compression` decided, for the notes."""
    if compressed is not None:
        return "2 bits a number, threshold %g of the sum over a device's samples" % compressed["threshold"]
    asked = setup.knobs.get("compression", "none")
    return asked if asked == "none" else "none: a lone device's gradients stay whole"
