"""Which gradients travel together, and when: messages of neighbouring layers, in the order in which backward ends.

A message is a tuple of indices into the layers, which stand in backward order here: the last of the network first.
"""

from collections.abc import Sequence

import numpy as np

from suite.analysis.stats import Values
from suite.predict.collectives import Cost
from suite.predict.scenario import LayerCost

FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20  # bytes; PyTorch's defaults
OVERLAPPING = ("wfbp", "buckets", "merged", "priority")

Message = tuple[int, ...]


def messages(schedule: str, layers: Sequence[LayerCost], cost: Cost) -> list[Message]:
    """The messages of a schedule (suite.predict.scenario.SCHEDULES); `cost` is that of one, `bytes` what is sent."""
    sent = [index for index, layer in enumerate(layers) if layer.bytes]
    if schedule == "fused":
        return [tuple(sent)] if sent else []
    if schedule == "buckets":
        return _buckets(layers, sent)
    if schedule == "merged":
        return _merged(layers, sent, cost)
    return [(index,) for index in sent]


def _buckets(layers: Sequence[LayerCost], sent: list[int]) -> list[Message]:
    """A bucket is closed when it holds as much as it should, or more."""
    found: list[Message] = []
    limit, bucket, held = FIRST_BUCKET, [], 0.0
    for index in sent:
        bucket.append(index)
        held += layers[index].bytes
        if held >= limit:
            found.append(tuple(bucket))
            limit, bucket, held = BUCKET, [], 0.0
    return [*found, tuple(bucket)] if bucket else found


def _merged(layers: Sequence[LayerCost], sent: list[int], cost: Cost) -> list[Message]:
    """Of all ways to cut the layers into neighbours, one whose last message ends earliest, in few messages.

    end(j) = min over i < j of max(end(i), ready(j)) + cost of i+1 ... j. What ends earlier never delays what follows,
    so that the best way to send the first j layers is part of a best way to send all.
    """
    count = len(sent)
    ready = np.cumsum([layer.backward for layer in layers])[sent]
    size = np.concatenate([[0.0], np.cumsum([layers[index].bytes for index in sent])])
    end = np.zeros(count + 1)
    for j in range(1, count + 1):
        end[j] = (np.maximum(end[:j], ready[j - 1]) + cost.start + cost.per_byte * (size[j] - size[:j])).min()
    return _fewest(sent, ready, size, end, cost)


def _fewest(sent: list[int], ready: Values, size: Values, end: Values, cost: Cost) -> list[Message]:
    """From the last message back, each with as many layers as still lets the whole end then."""
    found: list[Message] = []
    count, deadline = len(sent), end[-1]
    while count:
        seconds = cost.start + cost.per_byte * (size[count] - size[:count])
        in_time = np.maximum(end[:count], ready[count - 1]) + seconds <= deadline * (1 + 1e-12)
        begin = int(in_time.argmax())
        found.append(tuple(sent[begin:count]))
        count, deadline = begin, deadline - seconds[begin]
    return found[::-1]
