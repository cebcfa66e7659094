"""The trainer on one rank: proof, machine, what the loop needs."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from stagebench.adapters.tensorflow import machine
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.adapters.alike import RULES, Alike
from tests.support import proofs, trainers

VARIANTS = [
    {"tuning": "default"},
    {"tuning": "tuned"},
    {"tuning": "tuned", "xla": "off"},
    {"tuning": "tuned", "strategy": "mirrored"},
]


def test_it_is_proven_in_nchw(trainer, small, oracle):
    """In float32: NCHW has no such kernels of another on a CPU."""
    ours = trainer(batch=8, tuning="default", xla="step", layout="NCHW")
    proofs.assert_proven(small, proofs.prove(ours, small, 8, oracle), loss=2e-6)


def test_layers_that_xla_compiles_are_not_timed(trainer):
    ours = trainer()
    ours.xla = "step"
    with pytest.raises(Unsupported, match="XLA compiles"):
        ours.layer_times(None)


def test_it_computes_on_as_many_threads_as_were_asked_for(trainer):
    trainer()
    assert tf.config.threading.get_intra_op_parallelism_threads() == 1


def test_staged_and_native_take_the_same_steps_with_dropout(trainer, small):
    found = []
    ours = trainer(batch=8)
    for staged in (False, True):
        ours.build(small, dict(weights.initial(small)))
        batch = ours.to_device(synthetic(small, 8, 1))
        for _ in range(3):
            trainers.staged(ours, batch) if staged else ours.step(batch)
        found.append(ours.loss())
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_tuning_and_network_decide_what_auto_means(trainer, small):
    transformer = by_name()["gpt_char"].graph()
    for tuning, graph, xla in (("tuned", small, "update"), ("tuned", transformer, "step"), ("default", small, "off")):
        ours = trainer(tuning=tuning)
        ours.build(graph, dict(weights.initial(graph)))
        assert ours.notes()["xla"] == xla
        assert ours.notes()["layout"] == "NHWC"


def test_notes_name_the_optimiser_s_kernel(trainer, small):
    for optimiser, kernel in ((RULES["usual"], "ResourceApplyAdam"), (RULES["sgd"], "ResourceApplyMomentum")):
        ours = trainer(batch=8, xla="off", optimiser=optimiser)
        ours.build(small, dict(weights.initial(small)))
        assert ours.notes()["optimiser"] == kernel


def test_memory_of_all_of_a_rank_s_gpus_is_added_up(trainer, monkeypatch):
    ours = trainer()
    assert ours.peak_device_bytes() is None, "a CPU has no allocator of its own"
    peaks = {"GPU:0": {"current": 1, "peak": 100}, "GPU:1": {"current": 1, "peak": 1000}}
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", peaks.__getitem__)
    ours.setup = ours.setup._replace(device="cuda", devices=2)
    assert ours.peak_device_bytes() == 1100


class TestAlike(Alike):
    framework, library, module, meets = "TensorFlow", "TensorFlow", "tensorflow", "multiworker_mirrored"
    lowering = ({"tuning": "default"}, {"tuning": "tuned", "xla": "off"})
    counting = ("default",)
    dropping = ({"xla": "update"}, {"xla": "step"})
    updates = tuple(
        {"rule": rule, "precision": precision, **options}
        for options in (
            *VARIANTS,
            {"tuning": "default", "xla": "step"},
            {"tuning": "tuned", "strategy": "mirrored", "xla": "off"},
        )
        for rule, precision in (("large", "float64"), ("clipped", "float64"))
    ) + tuple({"rule": "large", "precision": "float32", "tuning": tuning} for tuning in ("default", "tuned"))
    test_arrays_come_in_the_order_of_all_adapters = None  # test_input.py: of files decoded into memory, too

    def devices(self):
        return len(tf.config.list_physical_devices("GPU"))

    def draw(self):
        tf.random.uniform([3])

    def yardstick(self, ours):
        return machine.yardstick(ours.setup, ours.devices)


def test_a_person_s_keras_json_chooses_nothing(tmp_path):
    (tmp_path / ".keras").mkdir()
    theirs = {"backend": "torch", "floatx": "float16", "image_data_format": "channels_first", "epsilon": 1e-7}
    (tmp_path / ".keras" / "keras.json").write_text(json.dumps(theirs))
    script = "import tensorflow as tf; print(tf.keras.config.floatx(), tf.keras.backend.backend())"
    environ = dict(os.environ, HOME=str(tmp_path))
    assert subprocess.check_output([sys.executable, "-c", script], env=environ).split() == [b"float32", b"tensorflow"]
