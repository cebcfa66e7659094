"""MXNet's own LRN is oneDNN's, and its gradient is wrong: the proof must say so, and the composed one must pass."""

import numpy as np
import pytest

from suite.worker.contract import Unsupported
from suite.worker.feed import synthetic
from tests.support import proofs
from workloads import weights
from workloads.build import Builder


def alexnets_beginning(follower):
    """conv, relu, LRN, then what MXNet's own gradient goes wrong before."""
    b = Builder("beginning", (3, 17, 17), 5)
    x = b.lrn("norm", b.conv_relu("conv", "input", 16, 3, pad=1), size=5, alpha=0.5, beta=0.75, k=2.0)
    x = b.max_pool("next", x, 3, 2) if follower == "pool" else b.conv("next", x, 8, 1)
    b.head(b.dense("fc", b.flatten("flat", x), 5))
    return b.graph


def proven(trainer, graph, folder, **options):
    oracle = proofs.write_oracle(graph, 4, folder)
    return proofs.prove(trainer(batch=4, **options), graph, 4, oracle)


@pytest.mark.parametrize("tuning", ["default", "tuned"])
@pytest.mark.parametrize("follower", ["pool", "conv"])
def test_the_proof_catches_the_native_gradient_and_passes_the_composed_one(trainer, tmp_path, follower, tuning):
    graph = alexnets_beginning(follower)
    errors = {}
    for lrn in ("native", "composed"):
        proof = proven(trainer, graph, tmp_path / lrn, lrn=lrn, tuning=tuning)
        assert max(proof["errors"]["logits"].values()) < 1e-5, "the forward is right either way"
        errors[lrn] = proof["errors"]["gradient"]
    assert max(errors["composed"].values()) < 1e-5
    assert errors["native"]["conv.weight"] > 0.1
    assert errors["native"]["fc.weight"] < 1e-5, "what stands behind it is right"


@pytest.mark.parametrize(("size", "precision"), [(5, "float64"), (4, "float32")])
def test_what_the_native_one_cannot_do_is_unsupported(trainer, size, precision):
    b = Builder("window", (6, 4, 4), 3)
    b.head(b.dense("fc", b.flatten("flat", b.lrn("norm", "input", size=size)), 3))
    ours = trainer(lrn="native", precision=precision)
    ours.build(b.graph, dict(weights.initial(b.graph)))
    with pytest.raises(Unsupported, match=f"'norm' normalises over {size} channels in {precision}"):
        ours.forward(ours.to_device(synthetic(b.graph, 2, 1)))


@pytest.mark.parametrize("size", [1, 2, 5, 4, 13])
@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_the_composed_one_is_exact_for_any_window(trainer, tmp_path, size, tuning):
    b = Builder("window", (6, 4, 4), 3)
    b.head(b.dense("fc", b.flatten("flat", b.lrn("norm", b.conv("conv", "input", 6, 1), size=size, alpha=0.5)), 3))
    proof = proven(trainer, b.graph, tmp_path, tuning=tuning, precision="float64")
    assert max(proof["errors"]["gradient"].values()) < 1e-6
    np.testing.assert_allclose(
        proof["losses"]["native"], proof["losses"]["oracle"], rtol=1e-7
    )  # the rate is a float32 in MXNet
