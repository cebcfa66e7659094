"""A network in stages that only infers, on real ranks: its answers are the oracle's, and those of one process."""

import pytest

from stagebench.suite.worker.contract import SGD
from stagebench.workloads.networks import by_name
from tests.support import proofs

RULE = SGD(0.001, 0.9, 1e-3)


@pytest.mark.parametrize(("name", "tuning"), [("mnist_small", "tuned"), ("gpt_char", "default")])
def test_the_answers_of_two_stages_are_the_oracles_in_each_load(ranks, tmp_path, name, tuning):
    """Each load drops its last query, under way on every rank, and the proof comes after all of them."""
    graph = by_name()[name].graph()
    proofs.write_oracle(graph, 6, tmp_path / "oracle", RULE)
    options = {"strategy": "pipeline_inference", "model_parallel_size": 2, "microbatches": 3, "batch": 6}
    first, last = ranks("infer", graph, tuning=tuning, precision="float64", **options)
    errors = first["proof"]["errors"]["predict"]
    assert set(errors) == {"all samples", "one sample", "padded"}
    assert max(errors.values()) < 1e-6, errors
    assert last["proof"]["errors"] == {"predict": {}}, "the first rank has the answers"
    assert first["notes"]["pipeline"]["microbatches"] == 3
    assert len(first["notes"]["pipeline"]["stages begin at"]) == 2
    for found in (first, last):  # of the usual query of six a rank counts its share
        assert found["samples"] == {"offline": 3, "single_stream": 1, "multi_stream": 8}
