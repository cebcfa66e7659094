"""Two bits a number: every gradient is pushed as -threshold, 0 or +threshold, the rest is kept for the next push.

A device's gradients are sums over its samples; these, not their means, are compared with
the threshold. Who compresses keeps a residual of its own: a worker of a distributed store
(what the servers send back is whole), every device of a "device" store.
"""

from typing import Any, Dict, Optional

from suite.worker.contract import Setup

BITS = "2bit"


def compression(setup: Setup) -> Optional[Dict[str, Any]]:
    """The arguments of `set_gradient_compression`; None where nothing is compressed.

    A lone device's gradients stay whole: compression is for what several exchange, and what is
    proven of such a case is what one device computes.
    """
    if not asked(setup) or setup.world * setup.devices == 1:
        return None
    return {"type": BITS, "threshold": float(setup.knobs["threshold"])}


def described(compressed: Optional[Dict[str, Any]], setup: Setup) -> str:
    if compressed is not None:
        return "2 bits a number, threshold %g of the sum over a device's samples" % compressed["threshold"]
    return "none: a lone device's gradients stay whole" if asked(setup) else "none"


def asked(setup: Setup) -> bool:
    """By the knob; Horovod's adapter builds on this one, and has no such knob."""
    return bool(setup.knobs.get("compression") == BITS)


class Compressed:
    """A distributed store that compresses what is pushed.

    MXNet refuses it a `pushpull`, which is all that gluon.Trainer asks of a store.
    """

    def __init__(self, store: Any, compression: Dict[str, Any]) -> None:
        """Set it on workers and servers; before the keys of gradients are initialised, which is a barrier."""
        store.set_gradient_compression(compression)
        self._store = store

    def __getattr__(self, name: str) -> Any:
        """All else is the store's own."""
        return getattr(self._store, name)

    def pushpull(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        """One after the other; the engine keeps their order, a key at a time."""
        self._store.push(key, value, priority=priority)
        self._store.pull(key, out=out, priority=priority)
