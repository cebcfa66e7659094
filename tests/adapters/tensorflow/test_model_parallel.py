"""A network whose layers lie on several devices: proven, placed, cut and timed."""

import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from stagebench.adapters.tensorflow.stages import Pipeline
from stagebench.suite.worker.pipeline_stages import stages
from tests.support import processes, proofs


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
    for device, stage in zip(("CPU:0", "CPU:1"), stages(small, 2), strict=True):
        layers = small.layers[stage.begin : stage.end]
        names = [name for layer in layers for name, *_ in [*layer.parameters, *layer.buffers]]
        assert {placed["variables"][name] for name in names} == {device}
    for kind in ("Conv2D", "Conv2DBackpropFilter"):
        assert {f"{kind} CPU:0", f"{kind} CPU:1"} <= set(placed["work"])
    assert {each.split()[1] for each in placed["work"]} == {"CPU:0", "CPU:1"}, "nothing is placed by chance"


@pytest.mark.parametrize("case", range(2), ids=["default", "tuned"])
def test_stages_that_infer_answer_as_the_oracle_and_each_on_its_device(found, case):
    inferred = found["inferred"][case]
    assert set(inferred["errors"]) == {"all samples", "one sample", "padded"}
    assert max(inferred["errors"].values()) < 1e-6
    assert inferred["work"] == ["CPU:0", "CPU:1"]
    assert inferred["notes"]["stages"]["microbatches"] == 3


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
    assert notes["stages"].startswith(f"CPU:0: {small.layers[0].name} to ")
    assert f"to {small.layers[-1].name} (" in notes["stages"]
    held = [float(each) for each in re.findall(r"([\d.]+) MiB of parameters", notes["stages"])]
    assert sum(held) == pytest.approx(small.gradient_bytes() / 2**20, rel=0.01)
    assert (notes["microbatches"], found["proofs"][1]["notes"]["microbatches"]) == (1, 2)


def test_a_pipeline_works_side_by_side_and_tells_how_long_it_waited():
    pipeline, met = Pipeline(2), threading.Barrier(2, timeout=300)

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
