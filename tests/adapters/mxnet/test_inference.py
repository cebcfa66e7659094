import numpy as np
import pytest

from stagebench.adapters.mxnet.inference import MXNetPredictor
from stagebench.adapters.mxnet.net import by_head
from stagebench.suite.worker.queries import tensors_of
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from stagebench.workloads.networks import by_name
from tests.adapters.alike import assert_queries_are_apart
from tests.support.trainers import setup


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_queries_in_flight_have_their_own_answers(tuning):
    assert_queries_are_apart(MXNetPredictor, tuning)


def read_by_others() -> Builder:
    """Two attentions with the same heads read one `qkv`; other heads, or an addition, read others."""
    b = Builder("others", (3, 8, 8), 5)
    x = b.graph.add("cut", "tokens", ("input",), patch=4)
    alike, other, added = (b.graph.add(name, "qkv", (x,)) for name in ("alike", "other", "added"))
    sums = b.add("sum", added, other)
    read = ((alike, 4), (alike, 4), (other, 4), (other, 6), (added, 4), (sums, 4))
    heads = [
        b.graph.add(f"attention{i}", "attention", (name,), heads=heads, causal=bool(i % 2))
        for i, (name, heads) in enumerate(read)
    ]
    b.head(b.dense("fc", b.graph.add("mean", "mean", (b.add("all", *heads),)), 5))
    return b


def test_rows_are_by_head_where_attention_alone_reads_them():
    assert by_head(by_name()["gpt_char"].graph()) == {f"block{number}_qkv": 4 for number in range(1, 5)}
    graph, found = read_by_others().graph, []
    assert by_head(graph) == {"alike": 4}
    queries = np.random.RandomState(1).standard_normal((4, *graph.input_shape)).astype(np.float32)
    for tuning in ("default", "tuned"):
        predictor = MXNetPredictor(setup(strategy="inference", tuning=tuning, batch=4))
        predictor.start()
        predictor.load(graph, tensors_of(graph, weights.for_proof(graph)))
        found.append(np.concatenate([predictor.answer(queries[:count]) for count in (4, 1)]))
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
