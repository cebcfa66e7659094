"""The part of an exchange that computing can hide at all, to compare with the part that it hides.

The bound is a link that never rests and a processor that never waits without need: a
layer's gradient leaves when it is complete and the link is free, at the rate at
which `comm_only` moved all of them, without a start-up; what has arrived is updated once
backward is over, while the rest is on its way.

    link(l)   = max(link(l + 1), ready(l)) + comm_only x bytes(l) / bytes
    update(l) = max(update(l + 1), link(l), backward) + update x bytes(l) / bytes
    overlappable = comm_only - (update(1) - backward - update)

The layers run in the order in which their gradients are complete, mostly from the last to
the first. The first recursion is wait-free back-propagation's (S. Shi, Q. Wang, X. Chu,
"Performance modeling and evaluation of distributed deep learning frameworks on GPUs", 2018)
without start-ups, which no plan can undercut but by sending less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a rank has layers, but not what records are read with
    from stagebench.suite.worker.contract import LayerTimes


def overlappable(
    layers: Sequence[LayerTimes], comm_only: float, update: float, backward: float | None = None
) -> float | None:
    """Seconds of `comm_only` that backward and update could hide.

    `layers` in the graph's order. Timed one by one they take longer than the stage; `backward`, the stage's seconds,
    scales when their gradients are complete. None if no gradient is exchanged, or if the time of one is unknown.
    """
    sent = [(layer.ready_s, layer.bytes) for layer in layers if layer.bytes]
    whole, alone = float(sum(size for _, size in sent)), sum(layer.backward_s for layer in layers)
    known = sorted((ready, size) for ready, size in sent if ready is not None)
    if not known or len(known) < len(sent) or comm_only < 0:
        return None
    # Layers take less than all of backward, and yet the last gradient is complete when that is over, not later.
    alone = max(alone, known[-1][0])
    end = alone if backward is None else backward
    scale = end / alone if alone else 1.0
    link, processor = 0.0, end
    for ready, size in known:
        link = max(link, ready * scale) + comm_only * size / whole
        processor = max(processor, link) + update * size / whole
    return max(comm_only - (processor - end - update), 0.0)
