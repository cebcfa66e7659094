"""How much of an exchange computing can hide at all, and so how well it is hidden.

The bound is a link that never rests and a processor that never waits without need: a
layer's gradient leaves when its backward has ended and the link is free, at the rate at
which `comm_only` moved all of them, without a start-up; what has arrived is updated once
backward is over, while the rest is on its way.

    link(l)   = max(link(l + 1), ready(l)) + comm_only x bytes(l) / bytes
    update(l) = max(update(l + 1), link(l), ready(1)) + update x bytes(l) / bytes
    hideable  = comm_only - (update(1) - ready(1) - update)

The layers run from the last to the first; ready(l) is when l's backward has ended and
ready(1) the end of backward. The first recursion is wait-free back-propagation's (S. Shi,
Q. Wang, X. Chu, "Performance modeling and evaluation of distributed deep learning
frameworks on GPUs", 2018) without start-ups, which no plan can undercut but by sending less.
"""

from collections.abc import Sequence

from suite.results.rank_report import Layer


def hideable(layers: Sequence[Layer], comm_only: float, update: float) -> float | None:
    """Seconds of `comm_only` that backward and update could hide; None where no gradient is exchanged.

    `layers` in the graph's order.
    """
    whole = float(sum(layer.bytes for layer in layers))
    if not whole:
        return None
    backward: float = sum(layer.backward_s for layer in layers)
    ready, link, processor = 0.0, 0.0, backward
    for layer in reversed(layers):
        ready += layer.backward_s
        share = layer.bytes / whole
        if share:
            link = max(link, ready) + comm_only * share
            processor = max(processor, link) + update * share
    return comm_only - (processor - backward - update)
