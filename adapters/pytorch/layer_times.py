"""Each layer's seconds within a real forward and backward: laps between layers, and in autograd's hooks.

Autograd works through what the forward recorded in the opposite order, so a layer's backward lasts from the moment
its output's gradient is there until the next layer's is; sums over a value's readers are in the last one's.
"""

from functools import partial
from typing import Any, Callable, List

from adapters.pytorch.net import Net
from suite.worker.contract import LayerTimes
from suite.worker.layers import LayerClock, repeated
from workloads.graph import Graph


def layer_times(trainer: Any, graph: Graph, net: Net, evaluate: Callable[..., Any]) -> List[LayerTimes]:
    """`evaluate(network)` gives the heads and the loss of a batch; gradients are dropped."""
    clock = LayerClock(trainer, graph)
    places = {layer.name: index for index, layer in enumerate(graph.layers)}
    # After the accumulation, as DDP's and Horovod's own hooks.
    handles = [
        parameter.register_post_accumulate_grad_hook(partial(_complete, clock, places[name.rpartition(".")[0]]))
        for name, parameter in net.trainable()
    ]
    try:
        return repeated(clock, partial(_once, clock, len(graph.layers), net, evaluate))
    finally:
        for handle in handles:
            handle.remove()


def _once(clock: LayerClock, loss_row: int, net: Net, evaluate: Callable[..., Any]) -> None:
    running = [loss_row]  # the row whose backward is running

    def reached(index: int, _: Any) -> None:
        clock.backward(running[0])
        running[0] = index

    def done(index: int, output: Any, fresh: bool) -> None:
        clock.forward(index)
        if fresh and output.requires_grad:
            output.register_hook(partial(reached, index))

    clock.begin()
    _, loss = evaluate(lambda images: net.layer_by_layer(images, done))
    clock.forward(loss_row)
    clock.begin()
    loss.backward()
    clock.backward(running[0])
    net.zero_grad(set_to_none=True)


def _complete(clock: LayerClock, index: int, _: Any) -> None:
    clock.ready(index)
