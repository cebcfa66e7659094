"""The proof: an oracle agrees with itself, and a wrong result is seen where it is wrong."""

import json

import numpy as np
import pytest

from stagebench.adapters.reference.base import ReferenceTrainer
from stagebench.suite.worker import evidence
from stagebench.suite.worker.contract import Adam
from stagebench.workloads.graph import Graph
from tests.support import trainers
from tests.support.errors import raising


def small():
    """A network with everything a proof looks at: running statistics, dropout, two heads."""
    graph = Graph("small", (2, 6, 6), 3)
    x = graph.add("conv", "conv", ("input",), out=4, kernel=3)
    x = graph.add("relu", "relu", (graph.add("bn", "batch_norm", (x,)),))
    x = graph.add("flat", "flatten", (x,))
    graph.add_head(graph.add("aux", "dense", (x,), out=3), 0.3)
    graph.add_head(graph.add("fc", "dense", (graph.add("drop", "dropout", (x,), rate=0.5),), out=3))
    return graph


def reference(kind=ReferenceTrainer, **changes):
    return kind(trainers.setup(precision="float64", **changes))


@pytest.fixture
def oracle(tmp_path):
    """The small network's oracle for four samples, in a folder."""
    evidence.write_oracle(reference(), small(), 4, str(tmp_path))
    return tmp_path


def worst(errors):
    return {kind: max(found.values()) for kind, found in errors.items()}


def test_the_oracle_agrees_with_itself_in_every_tensor(oracle):
    proof = evidence.prove(reference(), small(), 4, str(oracle))
    assert proof.losses.staged == proof.losses.native == proof.losses.oracle
    assert len(set(proof.losses.oracle)) == evidence.UPDATES
    errors = worst(proof.errors)
    # The oracle is stored in float32; movements are small beside the values they are the difference of.
    for kind in ("logits", "gradient", "staged parameter", "native parameter"):
        assert errors[kind] < 6e-8, kind
    for kind in ("staged movement", "first native movement", "native movement"):
        assert errors[kind] < 1e-5, kind
    graph = small()
    counted = (proof.parameter_count, proof.macs, proof.graph_digest)
    assert counted == (graph.parameter_count, graph.macs, graph.without_dropout().digest)
    parameters = {p.name for p in graph.parameters}
    assert set(proof.errors["gradient"]) == set(proof.errors["staged movement"]) == parameters
    from_zero = {name for name in parameters if name.endswith(".bias")}
    statistics = {"bn.running_mean", "bn.running_var"}
    assert set(proof.errors["native parameter"]) == (parameters - from_zero) | statistics


class WithoutDecay(ReferenceTrainer):
    """Applies no weight decay in its native step."""

    def step(self, batch):
        proper, self._rule = self._rule, self._rule._replace(weight_decay=0.0)
        super().step(batch)
        self._rule = proper


class WrongConvolution(ReferenceTrainer):
    """One gradient is off by a part in a thousand."""

    def gradients(self):
        found = super().gradients()
        found["conv.weight"] *= 1.001
        return found


class Forgetful(ReferenceTrainer):
    """Reports neither one gradient nor a running statistic, and one of another shape."""

    def gradients(self):
        found = super().gradients()
        del found["fc.bias"]
        found["fc.weight"] = found["fc.weight"].T
        return found

    def parameters(self):
        found = super().parameters()
        del found["bn.running_var"]
        return found


def test_a_wrong_update_is_seen_where_it_is_made(tmp_path):
    decayed = {"optimiser": trainers.RULE._replace(weight_decay=0.01)}
    evidence.write_oracle(reference(**decayed), small(), 4, str(tmp_path))
    errors = worst(evidence.prove(reference(WithoutDecay, **decayed), small(), 4, str(tmp_path)).errors)
    assert errors["staged parameter"] < 6e-8
    assert errors["first native movement"] > 1e-3
    assert errors["native parameter"] > 1e-5
    assert errors["native movement"] > 1e-3


def test_what_is_wrong_a_multiple_missing_or_misshapen_is_named(oracle):
    errors = evidence.prove(reference(WrongConvolution), small(), 4, str(oracle)).errors["gradient"]
    assert errors.pop("conv.weight") == pytest.approx(1e-3, rel=1e-3)
    assert max(errors.values()) < 6e-8

    class Summed(ReferenceTrainer):
        def gradients(self):
            return dict(super().gradients(), **{"fc.bias": 8.0 * super().gradients()["fc.bias"]})

    proof = evidence.prove(reference(Summed), small(), 4, str(oracle))
    assert proof.factors == {"gradient of fc.bias": pytest.approx(8.0)}
    errors = evidence.prove(reference(Forgetful), small(), 4, str(oracle)).errors
    assert [name for name, far in errors["gradient"].items() if far == float("inf")] == ["fc.bias", "fc.weight"]
    assert errors["native parameter"]["bn.running_var"] == float("inf")


@pytest.mark.parametrize("optimiser", [trainers.RULE, Adam(0.001, 0.9, 0.999, 1e-7, 0.01)])
def test_the_first_native_movement_names_the_wrong_tensor(tmp_path, optimiser):
    class Fused(ReferenceTrainer):
        """Its native step alone computes another gradient of the convolution."""

        def step(self, batch):
            self.forward(batch)
            self.backward()
            self._network.named("gradients")["conv.weight"][...] += 0.1
            self.update()

    evidence.write_oracle(reference(optimiser=optimiser), small(), 4, str(tmp_path))
    right = evidence.prove(reference(optimiser=optimiser), small(), 4, str(tmp_path)).errors["first native movement"]
    assert max(right.values()) < 1e-5
    errors = evidence.prove(reference(Fused, optimiser=optimiser), small(), 4, str(tmp_path)).errors
    assert [name for name, far in errors["first native movement"].items() if far > 1e-5] == ["conv.weight"]
    assert len([far for far in errors["native movement"].values() if far > 1e-5]) > 3


def test_each_update_has_a_batch_of_its_own(oracle):
    class Keeping(ReferenceTrainer):
        def step(self, batch):
            self.kept = getattr(self, "kept", batch)
            super().step(self.kept)

    errors = worst(evidence.prove(reference(Keeping), small(), 4, str(oracle)).errors)
    assert errors["first native movement"] < 1e-5
    assert errors["native movement"] > 1e-3


def test_an_oracle_of_something_else_is_refused(oracle):
    with raising(ValueError, "samples", 4, 8):
        evidence.prove(reference(batch=8), small(), 8, str(oracle))
    other = small()
    other.add("more", "relu", ("fc",))
    with raising(ValueError, "graph"):
        evidence.prove(reference(), other, 4, str(oracle))
    meta = json.loads((oracle / "meta.json").read_text())
    (oracle / "meta.json").write_text(json.dumps(dict(meta, weights="others")))
    with raising(ValueError, "weights", "others"):
        evidence.prove(reference(), small(), 4, str(oracle))


def test_a_rank_is_compared_with_its_rows_and_without_running_statistics(oracle):
    logits = evidence.load(str(oracle), "logits")
    moves = {name: np.array(evidence.load(str(oracle), "movement." + name)) for name in ("conv.weight", "fc.bias")}
    start = {name: np.full_like(move, 2.0**-10) for name, move in moves.items()}
    moved = {name: start[name].astype(np.float64) + move for name, move in moves.items()}
    second_rank = trainers.setup(rank=1, world=2, precision="float64")
    second = evidence.Oracle(str(oracle), second_rank, small(), 2, start)
    assert second.logits_error(np.array(logits[2:])) == 0.0
    assert second.logits_error(np.array(logits[:2])) > 0.1
    errors = second.parameter_errors("native", moved)
    assert errors == {"native parameter": dict.fromkeys(start, 0.0), "native movement": dict.fromkeys(start, 0.0)}
    first = evidence.Oracle(str(oracle), trainers.setup(), small(), 2, start).parameter_errors("native", moved)
    assert [name for name in first["native parameter"] if "running_" in name]
    unmoved = second.parameter_errors("native", start)
    assert list(unmoved["native movement"].values()) == pytest.approx([1.0, 1.0])
    lost = second.parameter_errors("native", {})
    assert set(lost["native parameter"].values()) == {float("inf")}


def test_queries_keys_and_values_are_judged_apart_and_a_zero_gradient_by_the_whole():
    graph = Graph("attentive", (1, 2, 2), 2)
    graph.add("qkv", "qkv", (graph.add("cut", "tokens", ("input",), patch=1),))
    theirs = np.array([[1.0], [1e-3], [1.0]])
    judge = evidence.Oracle("", trainers.setup(), graph, 2, {})
    error, _ = judge.compared("gradient of qkv.weight", "qkv.weight", theirs * [[1.0], [1.1], [1.0]], theirs)
    assert error == pytest.approx(0.1)
    assert not judge.factors
    theirs = np.array([3.0, 0.0, 4.0])
    error, _ = judge.compared("gradient of qkv.bias", "qkv.bias", np.array([3.0, 5e-6, 4.0]), theirs)
    assert error == pytest.approx(1e-6)
    error, _ = judge.compared("gradient of qkv.bias", "qkv.bias", np.array([3.0, np.nan, 4.0]), theirs)
    assert np.isnan(error)


@pytest.mark.parametrize("adam", [True, False])
def test_adam_is_held_to_no_direction_where_the_gradient_is_rounding(tmp_path, adam):
    rule = Adam(0.01, 0.9, 0.999, 1e-8, 0.1, decoupled=True) if adam else trainers.RULE
    start, gradient, movement = np.ones(4), np.array([1.0, -1.0, 1e-9, 1e-3]), np.array([-0.03, 0.03, 0.0, -0.03])
    evidence.save(str(tmp_path), "gradient.fc.bias", gradient)
    evidence.save(str(tmp_path), "movement.fc.bias", movement)

    def error(place, off, precision="float32"):
        judge = evidence.Oracle(
            str(tmp_path), trainers.setup(optimiser=rule, precision=precision), small(), 2, {"fc.bias": start}
        )
        ours = start + movement
        ours[place] += off
        errors = judge.parameter_errors("staged", {"fc.bias": ours})
        return errors["staged movement"]["fc.bias"], errors["staged parameter"]["fc.bias"]

    assert max(error(2, 0.025)) < 1e-5 if adam else min(error(2, 0.025)) > 0.01
    assert min(error(2, 0.07)) > 0.01  # further than three updates of both reach
    assert min(error(3, 0.025)) > 0.01  # a gradient that is small and no rounding
    assert min(error(2, 0.025, "float64")) > 0.01
    moved, whole = error(0, 2e-5)
    assert moved > 2e-4
    assert (whole == 0.0) == adam  # judged as movement


def test_distance():
    a, b = np.array([3.0, 4.0]), np.array([3.0, 0.0])
    assert evidence.distance(a, b) == pytest.approx(4 / 3)
    assert evidence.distance(b, a) == pytest.approx(4 / 5)
    assert evidence.distance(a, np.zeros(2)) == pytest.approx(5.0)
    assert evidence.distance(a, np.zeros(3)) == float("inf")
    assert np.isnan(evidence.distance(np.array([np.nan, 1.0]), a))
