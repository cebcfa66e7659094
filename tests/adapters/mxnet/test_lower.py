"""What MXNet cannot do is unsupported; its own LRN is oneDNN's, whose wrong gradient the proof must find."""

import mxnet as mx
import pytest

from stagebench.adapters.mxnet.lower import Choices
from stagebench.adapters.mxnet.net import Net
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from tests.support import proofs
from tests.support.errors import raising
from tests.support.networks import drawn, one_layer


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


def built(graph, samples):
    return Net(graph, drawn(graph), [mx.cpu()], "float64", samples, Choices(False, True, "float64"))


def test_axes_that_round_differently_are_unsupported():
    """Along one axis the last window is dropped, along the other kept: MXNet has one word for both."""
    graph = one_layer("max_pool", {"kernel": 3, "stride": 4, "pad": 1, "ceil": True}, (2, 6, 8))
    net = built(graph, 2)
    with pytest.raises(Unsupported, match=r"'it' pools \(6, 8\) to \(2, 3\); MXNet makes \(2, 2\) of it"):
        net(mx.sym.var("data"))


def test_batch_statistics_over_one_number_are_unsupported():
    with raising(Unsupported, "it"):
        built(one_layer("batch_norm", {}, (3, 1, 1)), 1)
