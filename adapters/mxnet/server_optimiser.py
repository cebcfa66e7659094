"""The optimiser that the servers of `dist_async` run, and which counts its updates.

The servers keep a number beside the weights. Every worker's push adds one to it and brings
the sum back (without loss up to 2**24 updates).

A server loads this file while it is still importing mxnet.
"""

from typing import Any

import mxnet as mx

from adapters.mxnet.optimisers import name_of, settings
from suite.worker.contract import Optimiser


class Counts:
    """Of an optimiser on a server: under one key it counts what is pushed, whatever that is."""

    counter = -1

    def update_multi_precision(self, index: Any, weight: Any, gradient: Any, state: Any) -> None:
        """One update, of a key (int) or of several."""
        if self.counter == (index[0] if isinstance(index, (list, tuple)) else index):
            for each in weight if isinstance(weight, (list, tuple)) else [weight]:
                each += 1
        else:
            super().update_multi_precision(index, weight, gradient, state)  # type: ignore[misc]


class CountingSGD(Counts, mx.optimizer.SGD):
    """SGD for the servers."""


class CountingAdam(Counts, mx.optimizer.Adam):
    """Adam for the servers."""


def counting(rule: Optimiser, samples: int, counter: int) -> Any:
    """The servers' optimiser; gradients are sums that stand for `samples` samples, `counter` is the number's key."""
    kind = {"sgd": CountingSGD, "adam": CountingAdam}[name_of(rule)]
    made = kind(rescale_grad=1.0 / samples, **settings(rule))
    made.counter = counter
    return made
