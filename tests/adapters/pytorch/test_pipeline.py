"""A network held by several ranks."""

import numpy as np
import pytest

from stagebench.adapters.pytorch.input import reader_of
from stagebench.suite.worker.sources import FolderSource
from stagebench.suite.worker.view import View
from stagebench.workloads.build import Builder
from stagebench.workloads.networks.gpt import gpt
from tests.support import networks, processes, trainers
from tests.support.jobs import READ_ONCE

NAP = 0.5  # seconds, as in rank.py


def network():
    """Four stages at least, a head before the end, a value that is read twice, batch norm, dropout."""
    b = Builder("small", (2, 8, 8), 5)
    x = b.relu("r1", b.conv_bn("c1", "input", 4, 3, pad=1))
    b.head(b.dense("fc1", b.flatten("f1", x), 5), 0.3)
    x = b.relu("r2", b.add("sum", b.conv_bn("c2", x, 4, 3, pad=1), x))
    x = b.lrn("n3", b.relu("r3", b.conv("c3", x, 6, 3, pad=1)), alpha=0.1)
    b.head(b.dense("fc2", b.flatten("f2", b.dropout("d", b.max_pool("p", x, 2, 2), 0.5)), 5))
    return b.graph


@pytest.mark.parametrize(("schedule", "world"), [("gpipe", 2), ("1f1b", 3)])
def test_a_pipeline_is_proven(proven, schedule, world):
    knobs = {"schedule": schedule, "microbatches": 4}
    proven(network(), world, pieces=4, strategy="pipeline", model_parallel_size=world, tuning="default", **knobs)


@pytest.mark.parametrize(("schedule", "optimiser"), [("gpipe", "adam"), ("1f1b", "sgd")])
def test_stages_have_copies_of_a_tied_weight(proven, schedule, optimiser):
    knobs = {"schedule": schedule, "microbatches": 2, "optimiser": optimiser}
    proven(networks.text(), 2, pieces=2, strategy="pipeline", model_parallel_size=2, tuning="tuned", **knobs)


@pytest.mark.parametrize(("strategy", "world", "stages"), [("pipeline", 3, 3), ("hybrid", 4, 2)])
def test_the_stages_that_share_a_weight_sum_up_its_gradient(proven, strategy, world, stages):
    """The first and the last of three; in each of two pipelines. Its norm counts once where gradients are clipped."""
    graph = gpt("tied", 5, 7, 8, 2, 3)
    cut = {"model_parallel_size": stages, "microbatches": 3, "tuning": "default"}
    found = proven(graph, world, pieces=3, batch=6, strategy=strategy, optimiser="clipped", **cut)
    if strategy == "hybrid":  # replicas exchange both copies
        assert sum(each["gradient_bytes"] for each in found[:2]) == 8 * (graph.parameter_count + 7 * 8)


@pytest.mark.parametrize(
    ("graph", "world", "chunks", "pieces", "optimiser"),
    [
        (network(), 2, 2, 4, "adam"),
        (gpt("tied", 5, 7, 8, 2, 3), 3, 2, 3, "clipped"),
        (gpt("tied", 5, 7, 8, 2, 4), 2, 3, 2, "adam"),
    ],
)
def test_ranks_that_take_stages_in_turns_are_proven(proven, graph, world, chunks, pieces, optimiser):
    knobs = {"schedule": "interleaved", "chunks": chunks, "microbatches": pieces, "optimiser": optimiser}
    held = {"strategy": "pipeline", "model_parallel_size": world, "batch": 2 * pieces}
    proven(graph, world, pieces=pieces, tuning="default", **held, **knobs)


def test_pipelines_side_by_side_are_proven(proven):
    found = proven(
        network(),
        4,
        pieces=2,
        strategy="hybrid",
        model_parallel_size=2,
        microbatches=2,
        optimiser="adam",
        schedule="1f1b",
    )
    sent = [each["gradient_bytes"] for each in found]
    assert (sent[:2], sum(sent[:2])) == (sent[2:], network().gradient_bytes(itemsize=8)), "each stage is exchanged"


def test_it_notes_what_crosses_and_what_is_summed_up(ranks):
    graph = gpt("tied", 5, 7, 8, 2, 2)
    found = ranks("train", graph, batch=8, strategy="pipeline", model_parallel_size=2, microbatches=2)
    # Tokens of 5 x 8 there and back, of 8 samples; a table of 7 x 8 from each of two.
    assert [each["notes"]["exchanged_bytes"] for each in found] == [4 * (2 * 40 * 8 + 2 * 56) // 2] * 2
    assert found[0]["losses"] == found[1]["losses"]


def test_it_tells_what_it_waited(ranks, tmp_path):
    found = ranks("train", network(), batch=8, strategy="pipeline", model_parallel_size=2, microbatches=2)
    first, last = found
    assert first["losses"] == last["losses"]
    assert first["losses"][-1] < first["losses"][0]
    assert first["answers"] == last["answers"]
    waited, others = ([sum(bubble.values()) for bubble in each["bubbles"]] for each in found)
    # The last stage sleeps before it takes anything: that is the first one's waiting, and not its own.
    assert all(NAP / 2 < idle < whole for idle, whole in zip(waited, first["seconds"], strict=True))
    assert all(0 < idle < whole - NAP for idle, whole in zip(others, last["seconds"], strict=True))
    for notes in (first["built"], first["notes"]):  # also before any native step
        assert notes["pipeline"]["schedule"] == "ScheduleGPipe"
        assert "the transfer of what crosses included" in notes["pipeline"]["bubble"]
    ours, theirs = processes.saved_by(tmp_path, "trained")
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_a_stage_that_sees_no_images_opens_none(tmp_path):
    for label in ("ants", "bees"):
        (tmp_path / label).mkdir()
        for number in range(4):
            (tmp_path / label / f"{number}.jpg").write_text("no image")
    source = FolderSource(str(tmp_path), (3, 8, 8))
    asked = READ_ONCE
    view = View(source, asked, 1, str(tmp_path / "skipped.txt"))
    for tuning in ("default", "tuned"):
        setup = trainers.setup(rank=1, world=2, strategy="pipeline", model_parallel_size=2, batch=8, tuning=tuning)
        batch = reader_of(view, setup, inputs=False).next_batch()
        assert sorted(batch.labels.tolist()) == [0, 0, 0, 0, 1, 1, 1, 1]
        with pytest.raises(OSError, match="jpg"):
            reader_of(view, setup).next_batch()
