"""Adam, against a few lines of NumPy and against Keras' own, however it is run."""

import numpy as np
import pytest
import tensorflow as tf

from suite.worker.contract import Adam
from suite.worker.feed import synthetic
from tests.support.proofs import updated_by_hand
from workloads import weights
from workloads.build import Builder

# Nothing at its usual value, or a constant taken for another one would not show.
OPTIMISER = Adam(0.01, 0.8, 0.95, 1e-3, 0.02)
UPDATES = 4
VARIANTS = [
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


def gradients_of(trainer, graph):
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
@pytest.mark.parametrize("options", VARIANTS, ids=lambda variant: "-".join(variant.values()))
def test_it_is_the_rule(trainer, graph, options, precision):
    ours = trainer(batch=8, precision=precision, **options)
    ours.setup = ours.setup._replace(optimiser=OPTIMISER)
    wanted = updated_by_hand(dict(weights.initial(graph)), gradients_of(ours, graph), OPTIMISER)
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
    gradients = gradients_of(ours, graph)
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
