"""Strategies that share out the optimiser's state or the parameters, and one that averages now and then."""

import numpy as np
import pytest

from stagebench.workloads.graph import Graph
from stagebench.workloads.networks.gpt import gpt
from stagebench.workloads.networks.vit import vit
from tests.support import networks, processes

NAP = 0.5  # seconds, as in rank.py
BLOCKS = gpt("blocks", 5, 7, 8, 2, 3)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [("zero1", {}), ("fsdp", {}), ("accumulate", {"pieces": 4, "microbatches": 4})],
)
def test_it_is_proven_with_adam(proven, strategy, options):
    proven(networks.two_heads(), strategy=strategy, optimiser="adam", tuning="default", **options)


def test_segments_in_shares_are_proven(proven):
    proven(BLOCKS, strategy="fsdp", optimiser="clipped", checkpoint_segments=3)


@pytest.mark.parametrize(
    ("strategy", "held"),
    [("ddp", 1), ("zero1", 1), ("fsdp", 1), ("tensor_parallel", 2), ("branch_parallel", 2)],
)
def test_a_weight_of_two_layers_is_proven_and_clipped_once(proven, strategy, held):
    """A head that is tied to the embedding, one that is tied to a dense layer, and two branches that read tokens."""
    graph = Graph("tied", (6,), 9)
    tables = [graph.add(name, "embedding", ("input",), vocabulary=9, out=4) for name in ("table", "other", "third")]
    x = graph.add("bent", "gelu", (graph.add("sum", "add", tables[1:]),))
    x = graph.add("both", "add", (tables[0], x))
    graph.add_head(graph.add("side", "dense", (x,), out=9), 0.3)
    graph.add_head(graph.add("again", "tied", (x,), to="side", out=9), 0.3)
    graph.add_head(graph.add("head", "tied", (x,), to="table", out=9))
    proven(graph, strategy=strategy, model_parallel_size=held, optimiser="clipped")


@pytest.mark.parametrize(
    ("graph", "world"),
    [
        (gpt("heads", 5, 7, 8, 4, 1), 4),
        (vit("undivided", (3, 4, 4), 2, 6, 3, 1, 5), 2),
        (networks.perceptron(dropout=0), 3),
    ],
)
@pytest.mark.parametrize(("tuning", "optimiser"), [("tuned", "adam"), ("default", "clipped")])
def test_a_network_cut_by_columns_and_rows_is_proven(proven, graph, world, tuning, optimiser):
    proven(graph, world, strategy="tensor_parallel", model_parallel_size=world, optimiser=optimiser, tuning=tuning)


UNEQUAL, WHOLE_HEADS = vit("unequal", (3, 4, 4), 2, 6, 3, 1, 5), gpt("whole", 6, 7, 6, 3, 1)


@pytest.mark.parametrize("graph", [gpt("shares", 6, 7, 8, 4, 2), WHOLE_HEADS, UNEQUAL])
@pytest.mark.parametrize("optimiser", ["adam", "clipped"])
def test_shares_of_tokens_are_proven(proven, graph, optimiser):
    proven(graph, strategy="tensor_parallel", model_parallel_size=2, optimiser=optimiser, sequence="on")


GATHER, REDUCE, SCATTER = "all_gather_into_tensor", "all_reduce", "reduce_scatter_tensor"


@pytest.mark.parametrize(
    ("graph", "precision", "notes", "calls"),
    [
        # Two all-reduces of a block each way (Shoeybi 2019).
        *((BLOCKS, each, "12 in pairs by columns and rows", [[REDUCE] * 6] * 2) for each in ("float32", "bfloat16")),
        (
            vit("undivided", (3, 4, 4), 2, 6, 3, 1, 6),
            "float32",
            "2 by columns, 2 whole around attentions of 3 heads, 2 in pairs by columns and rows",
            [[GATHER, GATHER, REDUCE], [REDUCE] * 2],
        ),
        (networks.perceptron(dropout=0), "float32", "2 in pairs by columns and rows", [[REDUCE], []]),
        (networks.two_heads(), "float32", "2 by columns", [[GATHER] * 2, [REDUCE] * 2]),
    ],
)
def test_a_network_cut_by_columns_and_rows_exchanges_what_it_notes(ranks, graph, precision, notes, calls):
    options = {"strategy": "tensor_parallel", "model_parallel_size": 2, "precision": precision}
    for rank in ranks("traffic", graph, batch=4, **options):
        names = [[name for name, _ in stage] for stage in rank["given"]]
        assert [sorted(stage) for stage in names] == calls
        assert rank["notes"]["tensor_parallel"] == "parallelize_module, dense layers: " + notes
        given = [size for stage in rank["given"] for _, size in stage]
        assert sum(given) == rank["notes"]["exchanged_bytes"], rank["given"]


def test_shares_of_tokens_exchange_what_they_note(ranks):
    graph = gpt("shares", 6, 7, 8, 4, 2)
    options = {"strategy": "tensor_parallel", "model_parallel_size": 2, "sequence": "on"}
    for rank in ranks("traffic", graph, batch=4, **options):
        names = [sorted(name for name, _ in stage) for stage in rank["given"]]
        # A block's two pairs gather and scatter each way; the last normalisation is gathered, the first sum's gradient.
        assert names == [[GATHER] * 5 + [SCATTER] * 4, [GATHER] * 5 + [REDUCE] * 10 + [SCATTER] * 4]
        assert sum(size for stage in rank["given"] for _, size in stage) == rank["notes"]["exchanged_bytes"]


def test_local_sgd_trains_apart_and_averages(ranks, tmp_path):
    # Eight steps: the last one averages.
    found = ranks("train", networks.two_heads(), batch=8, strategy="local_sgd", period=7)
    assert found[0]["losses"][-1] < found[0]["losses"][0]
    assert found[0]["notes"]["local_sgd"] == "models averaged after the steps 1, 8, 15, ..."
    assert found[0]["losses"][3] != found[1]["losses"][3]
    assert found[0]["gradient_bytes"] == -(-4 * networks.two_heads().parameter_count // 7), "a step's mean"
    ours, theirs = processes.saved_by(tmp_path, "trained")
    for name in ours:
        assert np.array_equal(ours[name], theirs[name]) == ("running" not in name), name


@pytest.mark.parametrize(("tuning", "optimiser"), [("default", "sgd"), ("tuned", "clipped")])
def test_branches_of_blocks_are_proven_on_three_ranks(proven, tuning, optimiser):
    options = {"strategy": "branch_parallel", "model_parallel_size": 3, "tuning": tuning, "optimiser": optimiser}
    assert len(proven(networks.two_blocks(), 3, **options)) == 3


@pytest.mark.parametrize(
    ("strategy", "graph", "notes"),
    [
        ("tensor_parallel", networks.two_heads(), "parallelize_module, dense layers: 2 by columns"),
        ("branch_parallel", networks.two_blocks(), "ranks of every block's branches: 0, 1, 1; 0, 1"),
    ],
)
def test_ranks_that_hold_a_network_together_stay_alike_where_units_are_dropped(ranks, tmp_path, strategy, graph, notes):
    """What every rank has whole is the same on all: each is given the same batch, and drops the same units."""
    found = ranks("train", graph, batch=8, strategy=strategy, model_parallel_size=2)
    assert found[0]["losses"] == found[1]["losses"]
    assert found[0]["losses"][0] != found[0]["losses"][5]
    assert found[0]["notes"][strategy] == notes
    assert found[0]["notes"]["exchanged_bytes"] > 0
    ours, theirs = processes.saved_by(tmp_path, "trained")
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_rank_waits_for_the_other_s_branches(ranks):
    found = ranks("train", networks.two_blocks(), batch=8, strategy="branch_parallel", model_parallel_size=2)
    waited, slept = ([sum(bubble.values()) for bubble in each["bubbles"]] for each in found)
    assert all(first > NAP / 2 for first in waited)
    assert 0 < min(slept) < min(waited)
