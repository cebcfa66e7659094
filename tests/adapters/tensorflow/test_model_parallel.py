"""A network whose layers lie on several devices: proven, placed, cut and timed."""

import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from adapters.tensorflow.cutting import crossing, cuts
from adapters.tensorflow.pipeline import Pipeline
from suite.worker.contract import Unsupported
from tests.support import processes, proofs
from workloads.build import Builder
from workloads.catalogue import by_name


@pytest.fixture(scope="module")
def found(small, tmp_path_factory):
    """What model_parallel_rank.py saw."""
    folder = tmp_path_factory.mktemp("stages")
    for count in (1, 2):
        proofs.write_oracle(small, 8, folder / f"shards-{count}", shards=count, observed=count)
    tokens = processes.rank_tokens(Path(__file__).with_name("model_parallel_rank.py"), "look", folder, small)
    processes.run_together([(tokens, processes.variables(TF_CPP_MIN_LOG_LEVEL="1"))])
    return processes.found_by(folder, 1)[0]


@pytest.mark.parametrize(
    "case", range(3), ids=["two devices", "three devices, two microbatches", "one device, two microbatches"]
)
def test_it_is_proven(found, small, case):
    proofs.assert_proven(small, found["proofs"][case], tensor=1e-6 if case == 2 else 1e-5)


def test_layers_their_gradients_and_their_work_lie_where_they_belong(found, small):
    placed = found["placed"]
    assert placed["gradients"] == [["CPU:0"], ["CPU:1"]]
    assert placed["labels"] == "CPU:1"
    (place,) = cuts(small, 2)
    for device, layers in (("CPU:0", small.layers[:place]), ("CPU:1", small.layers[place:])):
        names = [name for layer in layers for name, *_ in [*layer.parameters, *layer.buffers]]
        assert {placed["variables"][name] for name in names} == {device}
    for kind in ("Conv2D", "Conv2DBackpropFilter"):
        assert {f"{kind} CPU:0", f"{kind} CPU:1"} <= set(placed["work"])
    assert {each.split()[1] for each in placed["work"]} == {"CPU:0", "CPU:1"}, "nothing is placed by chance"


def test_the_bubble_is_told_and_the_lone_step_refused(found):
    bubble = found["placed"]["bubble"]
    assert bubble["forward"] > 0
    assert bubble["backward"] > 0
    assert found["dropout"]["whole"]["bubble"] is None
    assert found["placed"]["alone"].startswith("Unsupported: a network in stages exchanges activations")


def test_in_stages_it_trains_and_answers_as_on_one_device_with_dropout(found):
    dropout = found["dropout"]
    for name in ("native", "staged"):
        np.testing.assert_allclose(dropout[name]["losses"], dropout["whole"]["losses"], rtol=1e-5)
        np.testing.assert_allclose(dropout[name]["answer"], dropout["whole"]["answer"], rtol=1e-4)


def test_the_notes_say_what_lies_where(found, small):
    notes = found["proofs"][0]["notes"]
    assert notes["parts"].startswith(f"CPU:0: {small.layers[0].name} to ")
    assert f"to {small.layers[-1].name} (" in notes["parts"]
    assert (notes["microbatches"], found["proofs"][1]["notes"]["microbatches"]) == (1, 2)


def chain(*widths):
    b = Builder("chain", (widths[0], 1, 1), widths[-1])
    x = b.flatten("flat", "input")
    for number, width in enumerate(widths[1:-1]):
        x = b.dense(f"fc{number}", x, width)
    b.head(b.dense("last", x, widths[-1]))
    return b.graph


def test_no_other_cut_makes_the_heaviest_stage_lighter():
    graph = chain(10, 20, 30, 10, 40, 5)
    costs = [layer.macs for layer in graph.layers]

    def heaviest(places):
        borders = [0, *places, len(costs)]
        return max(sum(costs[begin:end]) for begin, end in pairwise(borders))

    others = [(one, two) for one in range(1, 6) for two in range(one + 1, 6)]
    assert heaviest(cuts(graph, 3)) == min(map(heaviest, others))
    assert cuts(graph, 1) == []
    assert cuts(graph, 6) == [1, 2, 3, 4, 5]
    with pytest.raises(Unsupported, match="chain has 6 layers, too few for 7 devices"):
        cuts(graph, 7)


def test_of_equal_cuts_the_narrowest_is_taken():
    b = Builder("narrow", (4, 8, 8), 5)
    x = b.graph.add("c1", "conv", ("input",), out=4, kernel=3, pad=1)
    x = b.max_pool("pool", b.relu("r", x), 2, 2)
    x = b.graph.add("c2", "conv", (x,), out=16, kernel=3, pad=1)
    b.head(b.dense("fc", b.flatten("flat", x), 5))
    (place,) = cuts(b.graph, 2)
    assert b.graph.layers[place].name == "c2", "behind the pooling fewer numbers cross"


@pytest.mark.parametrize("name", ["resnet50", "googlenet"])
def test_what_crosses_a_cut_is_all_that_is_read_behind_it(name):
    graph = by_name()[name].graph()
    places = cuts(graph, 4)
    made = {"input"}
    for begin, end in pairwise([0, *places, len(graph.layers)]):
        known = set(crossing(graph, begin))
        assert known <= made
        for layer in graph.layers[begin:end]:
            assert set(layer.inputs) <= known
            known.add(layer.name)
        made = known
    assert {head.layer for head in graph.heads} <= made


def test_a_pipeline_works_side_by_side_and_tells_how_long_it_waited():
    pipeline, met = Pipeline(2), threading.Barrier(2, timeout=30)

    def work(stage, microbatch, value):
        if (stage, microbatch) in ((0, 1), (1, 0)):
            met.wait()  # both at the same time, or never
        return [*(value or []), (stage, microbatch)]

    assert pipeline.run([0, 1], [None, None], work) >= 0
    assert pipeline.run([1, 0], [None], lambda stage, microbatch, value: time.sleep(0.05)) >= 0.04
    pipeline.close()


def test_a_pipeline_whose_stage_fails_fails(recwarn):
    pipeline = Pipeline(3)

    def work(stage, microbatch, value):
        if (stage, microbatch) == (1, 1):
            raise ValueError("stage 1 fails")

    with pytest.raises(ValueError, match="stage 1 fails"):
        pipeline.run([0, 1, 2], [None] * 3, work)
    pipeline.close()
