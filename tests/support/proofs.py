"""The reference's results, and what is asserted of a trainer that is compared with them."""

import os

import numpy as np

from stagebench.adapters.reference.base import ReferenceTrainer
from stagebench.suite.worker import evidence
from stagebench.suite.worker.contract import Adam
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.typed_json import to_json
from stagebench.workloads import weights
from tests.support.trainers import RULE, setup


def reference(**changes):
    """The reference's trainer in float64, started."""
    trainer = ReferenceTrainer(setup(**dict({"precision": "float64"}, **changes)))
    trainer.start()
    return trainer


def write_oracle(graph, samples, folder, optimiser=RULE, **knobs):
    """The float64 results of a batch of so many samples, in a folder, made if need be; gives its path as text."""
    if not os.path.isdir(str(folder)):
        os.makedirs(str(folder))
    trainer = reference(batch=samples, optimiser=optimiser, knobs=knobs)
    evidence.write_oracle(trainer, graph, samples, str(folder))
    return str(folder)


def prove(trainer, graph, samples, folder):
    """What the worker half finds out beside the oracle in a folder, as JSON has it."""
    return to_json(evidence.prove(trainer, graph, samples, str(folder)))


def assert_proven(graph, *proofs, loss=1e-5, tensor=3e-5):
    """What every rank's proof, as such or as it came through JSON, must say.

    The ranks' losses are averaged first, as their batches are joined. A running mean of few samples is near zero, and
    float32's rounding is up to 2e-5 of it.
    """
    proofs = [to_json(proof) for proof in proofs]
    for way in ("staged", "native"):
        joint = np.mean([proof["losses"][way] for proof in proofs], axis=0)
        np.testing.assert_allclose(joint, proofs[0]["losses"]["oracle"], rtol=loss, err_msg=way)
    for proof in proofs:
        for kind in ("logits", "gradient", "staged parameter", "native parameter"):
            name, error = max(proof["errors"][kind].items(), key=lambda item: item[1])
            assert error < tensor, (kind, name, error)
        assert (proof["macs"], proof["parameter_count"]) == (graph.macs, graph.parameter_count)


def updated_by_hand(start, gradients, rule):
    """Parameters after updates with these gradients, one dictionary each, by the rule's formula in float64."""
    found, factors = {}, [1.0] * len(gradients)
    if rule.clip:
        norms = [
            np.sqrt(sum(np.square(each, dtype=np.float64).sum() for each in every.values())) for every in gradients
        ]
        factors = [min(1.0, rule.clip / norm) for norm in norms]
    for name, tensor in start.items():
        w = tensor.astype(np.float64)
        first, second = np.zeros_like(w), np.zeros_like(w)
        decay = rule.weight_decay if w.ndim > 1 or rule.decays == "all" else 0.0
        for update, each in enumerate(gradients, 1):
            decoupled = isinstance(rule, Adam) and rule.decoupled
            g = factors[update - 1] * each[name] + (0.0 if decoupled else decay * w)
            if isinstance(rule, Adam):
                w = w * (1 - rule.lr * decay) if decoupled else w
                first = rule.beta1 * first + (1 - rule.beta1) * g
                second = rule.beta2 * second + (1 - rule.beta2) * g * g
                w = w - rule.rate(update) * first / (np.sqrt(second) + rule.epsilon)
            else:
                first = rule.momentum * first + g
                w = w - rule.lr * first
        found[name] = w
    return found


def assert_updates_follow(ours, graph, rule, bound, updates=5):
    """Staged updates of two builds, which start afresh, and native steps are the rule's formula.

    The distance is that of what was added to each parameter, which shows an error that hides in the parameter itself.
    """
    start = dict(weights.initial(graph))
    for _ in range(2):
        ours.build(graph, start)
        batch, gradients = ours.to_device(synthetic(graph, ours.setup.batch, 1)), []
        for _ in range(updates):
            ours.forward(batch)
            ours.backward()
            ours.communicate()
            gradients.append(ours.gradients())
            ours.update()
        wanted = updated_by_hand(start, gradients, rule)
        assert movement_error(ours.parameters(), wanted, start) < bound
    ours.build(graph, start)
    for _ in range(updates):
        ours.step(batch)
    assert movement_error(ours.parameters(), wanted, start) < bound


def movement_error(ours, theirs, start):
    """The largest distance of what was added to a parameter, relative to it."""
    return max(
        np.linalg.norm(ours[name] - theirs[name]) / np.linalg.norm(theirs[name] - start[name]) for name in theirs
    )


def assert_exchanged(saved, rtol=0.0, atol=0.0):
    """Two devices' tensors, `saved(name)`, are those of an exchange that averages gradients.

    Also when it is asked twice. Whole steps keep weights alike, a step alone does not, and trains all the same.
    """
    local, shared, whole, alone, after = map(saved, ("local", "shared", "whole", "alone", "after"))
    for name in local[0]:
        assert not np.array_equal(local[0][name], local[1][name])
        mean = local[0][name] / 2 + local[1][name] / 2
        for device in range(2):
            np.testing.assert_allclose(shared[device][name], mean, rtol=rtol, atol=atol)
            assert np.abs(after[device][name] - alone[device][name]).max() > 0
        np.testing.assert_array_equal(whole[0][name], whole[1][name])
        assert not np.array_equal(alone[0][name], alone[1][name])
