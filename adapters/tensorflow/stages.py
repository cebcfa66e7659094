"""A network cut into stages of consecutive layers, one per device of this process, for batches in microbatches.

Every operation is made under its device's name, those of the backward too: left to itself
TensorFlow puts the backward of a function over several devices on the first of them. In
the whole step nothing but data and the running statistics orders the work, so the
executor lets several devices work on different microbatches at a time. Staged, each
device has a thread: eager TensorFlow works while it waits, without the interpreter's lock.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Sequence, Tuple

import tensorflow as tf

from stagebench.adapters.tensorflow.lower import Inputs, Labels, Style, Tensor
from stagebench.adapters.tensorflow.net import Net, joint_loss
from stagebench.adapters.tensorflow.optimisers import Tensors
from stagebench.suite.worker.pipeline_stages import Stage
from stagebench.workloads.graph import Graph

# (stage, microbatch, the neighbour's result) -> this stage's result
Work = Callable[[int, int, Any], Any]


class StageNet(Net):
    """Consecutive layers on one device; the last stage has the loss."""

    def __init__(
        self, graph: Graph, variables: Dict[str, Any], style: Style, seed: Tuple[int, int], stage: Stage, device: str
    ) -> None:
        super().__init__(graph, variables, style, seed, graph.layers[stage.begin : stage.end])
        self.device, self.last = device, stage.end == len(graph.layers)
        self._takes, self._gives = stage.entering, stage.leaving

    def outputs(self, inputs: Sequence[Any]) -> List[Any]:
        """Return the values that later stages read (of the last stage the heads' logits)."""
        values = dict(zip(self._takes, inputs))
        self.run(values)
        names = [head.layer for head in self.graph.heads] if self.last else self._gives
        return [tf.identity(values[name]) if name in self._takes else values[name] for name in names]

    def loss(self, inputs: Any, labels: Any) -> Tuple[Any, List[Any]]:
        """Return the last stage's (loss, heads' logits)."""
        heads = self.outputs(inputs)
        return joint_loss(self.graph, heads, labels), heads

    def backward(self, tape: Any, made: Any, given: Any, upstream: Any) -> Tuple[Any, Tensors]:
        """Return gradients of (the inputs, the trainable variables); `upstream`: of the outputs, None for a loss.

        Of the images, or tokens, none are asked for.
        """
        with tf.device(self.device):
            if self._takes == ("input",):
                return None, tape.gradient(made, self.trainable, output_gradients=upstream)
            found: Tuple[Any, Tensors] = tape.gradient(made, (given, self.trainable), output_gradients=upstream)
            return found


def differentiated(stages: Sequence[StageNet], inputs: Inputs, labels: Labels) -> Tuple[Tensor, List[Tensors]]:
    """Return (loss, every stage's gradients) of one microbatch; inside a tf.function."""
    runs: List[Any] = []
    values: Any = [inputs]
    for stage in stages:
        with tf.device(stage.device), tf.GradientTape() as tape:
            if runs:
                tape.watch(values)
            given, values = values, stage.loss(values, labels)[0] if stage.last else stage.outputs(values)
        runs.append((stage, tape, given, values))
    loss, upstream = values, None
    gradients: List[Tensors] = []
    for stage, tape, given, made in reversed(runs):
        upstream, own = stage.backward(tape, made, given, upstream)
        gradients.insert(0, own)
    return loss, gradients


def mean(microbatches: List[Tensors]) -> Tensors:
    """Return the mean of one stage's gradients over the microbatches."""
    if len(microbatches) == 1:
        return microbatches[0]
    return [tf.add_n(each) / len(microbatches) for each in zip(*microbatches)]


class Pipeline:
    """A thread per stage, which works on a microbatch as soon as its neighbour is done with it."""

    def __init__(self, stages: int) -> None:
        """Start no thread yet: each starts at its first task."""
        self._pool = ThreadPoolExecutor(stages)

    def run(self, order: Sequence[int], begin: List[Any], work: Work) -> float:
        """Run all stages; return the mean of their idle seconds, from the beginning to the last stage's end.

        `order`: the stages, the first is given `begin`, a value a microbatch. The first error of any stage is raised.
        """
        start = time.perf_counter()
        made: List[List["Future[Any]"]] = [[Future() for _ in begin] for _ in order]
        for future, value in zip(made[0], begin):
            future.set_result(value)
        made.append([Future() for _ in begin])
        jobs = [
            self._pool.submit(self._stage, stage, made[place], made[place + 1], work)
            for place, stage in enumerate(order)
        ]
        busy = [job.result() for job in jobs]
        return time.perf_counter() - start - sum(busy) / len(busy)

    def close(self) -> None:
        self._pool.shutdown()

    def _stage(self, stage: int, incoming: List[Any], outgoing: List[Any], work: Work) -> float:
        """Run one stage; return the seconds in which it worked."""
        busy = 0.0
        try:
            for microbatch, (comes, goes) in enumerate(zip(incoming, outgoing)):
                value = comes.result()
                start = time.perf_counter()
                result = work(stage, microbatch, value)
                busy += time.perf_counter() - start
                goes.set_result(result)
        except BaseException as error:
            for goes in outgoing:  # else the neighbour would wait forever
                if not goes.done():
                    goes.set_exception(error)
            raise
        return busy
