"""Jax as the controller sees it: what it can do and what its processes need.

This file never imports the framework: a whole plan is checked against it before anything starts.
"""

from suite.adapter import Adapter, Capabilities, Strategy
from suite.hooks import hookimpl

STRATEGIES = (
    # One entry for each way of spreading the training. Several ranks, synchronous: Strategy("...", "what it is",
    # ("local", "mpiexec")). Several devices driven by one process: distributed=False, several_devices=True.
    # Not equal to one device with the joined batch (asynchronous, quantised): synchronous=False.
    Strategy("single", "One process, no exchange.", ("local", "mpiexec"), distributed=False),
)


class Jax(Adapter):
    """Say in a line what it trains with."""

    name = "jax"
    title = "Jax"
    trainer = "adapters.jax.worker:JaxTrainer"
    requires = ()  # modules that its interpreter must have, beside NumPy: the framework's own first
    environment = "jax"
    remedy = "tox run -e jax"

    @property
    def capabilities(self) -> Capabilities:
        """Whatever the machine: a device that is missing there is the worker's to report (Unavailable)."""
        # float64 beside float32: identity is proven there. Kinds of layers that the framework lacks: name those
        # that it has in layer_kinds. Settings of its own: knobs={"...": Knob(values, default, "what it does")}.
        return Capabilities(strategies=STRATEGIES, precisions=("float32", "float64"), tunings=("default",))


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    """The adapter of this package."""
    return [Jax()]
