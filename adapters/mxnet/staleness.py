"""How stale the weights are that an asynchronous worker computes with: the updates that others made meanwhile.

The servers keep a number beside the weights. Every worker's push adds one to it and brings
the sum back (exact up to 2**24 updates), with the exchange of the weights whose gradient
comes last: what it grew by since this worker's last exchange, less its own one, is what
the others did between this worker's pull and its push.

Oldest Python: 3.6; a server loads this file while it is still importing mxnet.
"""

from typing import Any, Dict

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


class Staleness:
    """One worker's count of it."""

    def __init__(self, store: Any, counter: int) -> None:
        """From now on, before any step; the number must lie on the servers under its key, at zero."""
        self._store, self._counter = store, counter
        self._count, self._pending = mx.nd.zeros((1,)), False
        self._last = self._most = self._sum = self._steps = 0

    def mark(self, gradient: Any) -> None:
        """Before the exchange: have something to push as soon as this gradient is there, and not earlier."""
        self._settle()  # it came with weights that this step has computed with: there is nothing to wait for
        mx.nd.slice_axis(gradient.reshape((-1,)), axis=0, begin=0, end=1).astype("float32").copyto(self._count)

    def exchange(self) -> None:
        """With the exchange: push, and bring the sum back into the same array."""
        self._store.pushpull(self._counter, [self._count], out=[self._count], priority=0)
        self._pending = True

    def notes(self) -> Dict[str, Any]:
        """Updates of others a step: mean, max, and over how many steps."""
        self._settle()
        return {"mean": self._sum / float(max(1, self._steps)), "max": self._most, "steps": self._steps}

    def _settle(self) -> None:
        if self._pending:
            self._pending, now = False, int(self._count.asscalar())
            others, self._last = now - self._last - 1, now
            self._steps += 1
            self._sum += others
            self._most = max(self._most, others)
