"""Adam, against a few lines of NumPy and against Keras' own, in every way of running it."""

import numpy as np
import pytest
import tensorflow as tf

from suite.worker.contract import Adam
from suite.worker.feed import synthetic
from workloads import weights
from workloads.build import Builder

# Nothing at its usual value, or a constant taken for another one would not show.
OPTIMISER = Adam(0.01, 0.8, 0.95, 1e-3, 0.02)
UPDATES = 4
WAYS = [
    {"tuning": "default"},
    {"tuning": "tuned"},
    {"tuning": "tuned", "xla": "off"},
    {"tuning": "default", "xla": "step"},
    {"tuning": "tuned", "strategy": "mirrored"},
    {"tuning": "tuned", "strategy": "mirrored", "xla": "off"},
]
PRECISIONS = {"float32": 2e-6, "float64": 1e-12}


@pytest.fixture(scope="module")
def graph():
    b = Builder("two", (1, 4, 4), 3)
    b.head(b.dense("fc2", b.relu("r", b.dense("fc1", b.flatten("flat", "input"), 6)), 3))
    return b.graph


def by_numpy(initial, gradients, optimiser):
    """The weights after every list of gradients, in float64."""
    lr, b1, b2, epsilon, decay = optimiser
    w = {name: np.asarray(each, np.float64) for name, each in initial.items()}
    m = {name: np.zeros_like(each) for name, each in w.items()}
    v = {name: np.zeros_like(each) for name, each in w.items()}
    for t, found in enumerate(gradients, 1):
        for name, gradient in found.items():
            g = gradient + decay * w[name]
            m[name] = b1 * m[name] + (1 - b1) * g
            v[name] = b2 * v[name] + (1 - b2) * g * g
            w[name] = w[name] - lr * np.sqrt(1 - b2**t) / (1 - b1**t) * m[name] / (np.sqrt(v[name]) + epsilon)
    return w


def staged(trainer, graph):
    """The gradients of some updates."""
    trainer.build(graph, dict(weights.initial(graph)))
    batch, found = trainer.to_device(synthetic(graph, 8, 1)), []
    for _ in range(UPDATES):
        trainer.forward(batch)
        trainer.backward()
        trainer.communicate()
        found.append({name: each.astype(np.float64) for name, each in trainer.gradients().items()})
        trainer.update()
    return found


def close(found, wanted, bound):
    for name, each in wanted.items():
        assert np.linalg.norm(found[name] - each) <= bound * np.linalg.norm(each), name


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("options", WAYS, ids=lambda way: "-".join(way.values()))
def test_it_is_the_rule(trainer, graph, options, precision):
    ours = trainer(batch=8, precision=precision, **options)
    ours.setup = ours.setup._replace(optimiser=OPTIMISER)
    wanted = by_numpy(dict(weights.initial(graph)), staged(ours, graph), OPTIMISER)
    close(ours.parameters(), wanted, PRECISIONS[precision])
    # From the start again: neither moments nor the count of updates are left over.
    ours.build(graph, dict(weights.initial(graph)))
    batch = ours.to_device(synthetic(graph, 8, 1))
    for _ in range(UPDATES):
        ours.step(batch)
    close(ours.parameters(), wanted, PRECISIONS[precision])


def test_it_is_keras_adam(trainer, graph):
    import keras

    ours = trainer(batch=8, tuning="default", precision="float64")
    ours.setup = ours.setup._replace(optimiser=OPTIMISER._replace(weight_decay=0.0))  # Keras' is another one
    gradients = staged(ours, graph)
    variables = {name: tf.Variable(np.asarray(each, np.float64)) for name, each in weights.initial(graph)}
    theirs = keras.optimizers.Adam(0.01, beta_1=0.8, beta_2=0.95, epsilon=1e-3, weight_decay=None, amsgrad=False)
    for found in gradients:
        theirs.apply_gradients([(tf.constant(found[name]), each) for name, each in variables.items()])
    # Keras rounds its constants to float32, whatever the weights are in.
    close(ours.parameters(), {name: each.numpy() for name, each in variables.items()}, 2e-6)


def test_notes_name_the_kernel(trainer, graph):
    ours = trainer(batch=8, xla="off")
    for optimiser, kernel in ((OPTIMISER, "ResourceApplyAdam"), (ours.setup.optimiser, "ResourceApplyMomentum")):
        ours.setup = ours.setup._replace(optimiser=optimiser)
        ours.build(graph, dict(weights.initial(graph)))
        assert ours.notes()["optimiser"] == kernel
