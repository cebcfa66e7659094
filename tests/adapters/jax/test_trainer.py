"""The trainer on one device and on two of this process: proof, exchange, state, machine."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stagebench.adapters.jax import kernels, machine
from stagebench.adapters.jax.net import inside
from stagebench.suite.worker.contract import Unavailable, Unsupported
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.step_ends import StepEnds
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.adapters.alike import EVERY, Alike
from tests.adapters.alike_reading import Reading
from tests.support import proofs, trainers
from tests.support.errors import raising
from tests.support.networks import drawn, perceptron, two_heads
from tests.support.trainers import by_strategy

ROOT = Path(__file__).parents[3]


def test_two_devices_are_proven_in_float64(trainer, tmp_path):
    graph = two_heads(width=16)
    oracle = proofs.write_oracle(graph, 8, tmp_path, shards=2)
    ours = trainer(strategy="pmap", tuning="default", batch=8, precision="float64")
    proofs.assert_proven(graph, proofs.prove(ours, graph, 8, oracle), loss=1e-12, tensor=1e-7)


@pytest.mark.parametrize(
    ("precision", "least", "most", "strategy", "tuning"),
    [
        ("bfloat16", 1e-3, 5e-2, "single", "tuned"),
        ("bfloat16", 1e-3, 5e-2, "pmap", "default"),
        ("float16", 1e-4, 5e-3, "single", "default"),
        ("float16", 1e-4, 5e-3, "pmap", "tuned"),
    ],
)
def test_mixed_precision_multiplies_in_half_and_keeps_float32_weights(
    trainer, tmp_path, precision, least, most, strategy, tuning
):
    graph = two_heads(width=16)
    oracle = proofs.write_oracle(graph, 8, tmp_path, shards=2 if strategy == "pmap" else 1)
    ours = trainer(strategy=strategy, tuning=tuning, batch=8, precision=precision)
    proof = proofs.prove(ours, graph, 8, oracle)
    assert least < proof["errors"]["logits"]["logits"] < most  # eight bits of mantissa, or eleven
    np.testing.assert_allclose(proof["losses"]["native"], proof["losses"]["oracle"], rtol=most)
    np.testing.assert_allclose(proof["losses"]["native"], proof["losses"]["staged"], rtol=most / 10)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(ours._state[:3]) if leaf.dtype != np.int32)


def test_tf32_is_float32_where_there_is_no_such_thing(trainer, tmp_path):
    graph = two_heads(width=16)
    oracle = proofs.write_oracle(graph, 8, tmp_path)
    ours = trainer(batch=8, precision="tf32")
    proofs.assert_proven(graph, proofs.prove(ours, graph, 8, oracle))
    assert set(precisions(ours, graph)) == {(jax.lax.Precision.DEFAULT,) * 2}, "which is TF32 on GPUs"


def test_the_first_of_equals_gets_the_gradient():
    gradient = jax.grad(lambda x: kernels.max_pool(x, 2, 2, ((0, 0), (0, 0))).sum())(jnp.ones((1, 4, 4, 1)))
    np.testing.assert_array_equal(gradient[0, :, :, 0], np.kron(np.ones((2, 2)), [[1, 0], [0, 0]]))


def test_float32_is_never_less(trainer):
    ours = trainer(tuning="default")
    graph = two_heads()
    ours.build(graph, dict(weights.initial(graph)))
    assert set(precisions(ours, graph)) == {(jax.lax.Precision.HIGHEST,) * 2}


def precisions(ours, graph):
    """Of every convolution and product in a whole step."""
    batch = tuple(ours.to_device(synthetic(graph, ours.setup.batch, 1)))
    found, stack = [], [jax.make_jaxpr(ours._programs.step)(*ours._state, batch).jaxpr]
    while stack:
        for equation in stack.pop().eqns:
            stack += inside(equation.params)
            if equation.primitive.name in ("conv_general_dilated", "dot_general"):
                found.append(equation.params["precision"])
    return found


@pytest.mark.parametrize("strategy", ["single", "pmap"])
def test_images_may_be_arranged_by_the_device(trainer, tmp_path, strategy):
    """As on GPUs."""
    graph = two_heads(width=16)
    oracle = proofs.write_oracle(graph, 8, tmp_path, shards=2 if strategy == "pmap" else 1)
    ours = trainer(strategy=strategy, batch=8)
    ours._device_arranges = True
    proofs.assert_proven(graph, proofs.prove(ours, graph, 8, oracle))


@pytest.mark.parametrize(
    ("device", "tuning", "knobs", "words"),
    [
        ("cpu", "tuned", {}, "groups one by one, lax.reduce_window, max pooling by comparisons, rbg keys"),
        ("cpu", "default", {}, "lax.conv_general_dilated, lax.reduce_window, threefry keys"),
        ("cuda", "tuned", {}, "lax.conv_general_dilated, lax.reduce_window, rbg keys"),
        ("cuda", "default", {"deterministic": "on"}, "lax.reduce_window, max pooling by comparisons, threefry keys"),
    ],
)
def test_what_is_faster_on_cpus_is_left_to_them(device, tuning, knobs, words):
    ours = by_strategy("jax")(trainers.setup(device=device, tuning=tuning, knobs=knobs))
    assert words in ours.notes()["lowering"]
    assert ("threads" in ours.notes(), "input" in ours.notes()) == (device == "cpu", device == "cuda")


def built(ours, graph, samples=8):
    ours.build(graph, dict(weights.initial(graph)))
    return ours.to_device(synthetic(graph, samples, 1))


def test_a_native_step_is_not_waited_for(trainer):
    ours = trainer(batch=8)
    batch, waited, losses = built(ours, perceptron()), [], []
    ours._ends = StepEnds(2, waited.append)
    for _ in range(3):
        ours.step(batch)
        losses.append(ours._loss)
        ours.mark()
    assert [id(one) for one in waited] == [id(losses[0])]


@pytest.mark.parametrize(("batch", "steps"), [(64, 32), (2000, 10), (30000, 2)])
def test_the_host_runs_ahead_as_far_as_batches_leave_memory(trainer, batch, steps):
    ours, graph = trainer(batch=batch), by_name()["mnist_small"].graph()
    ours.build(graph, dict(weights.initial(graph)))
    assert ours._ends.behind == steps


@pytest.mark.parametrize(("devices", "waits"), [(1, False), (2, True)])
def test_a_step_is_waited_for_only_where_devices_would_run_into_the_next_exchange(devices, waits, monkeypatch):
    waited = []
    monkeypatch.setattr(jax, "block_until_ready", lambda found: waited.append(found) or found)
    with trainers.started(by_strategy("jax"), tuning="tuned", batch=2) as make:
        ours = make(strategy="pmap", batch=8, devices=devices)
        batch = built(ours, perceptron())
        ours._ends = StepEnds(2, id)  # which notes a step that is already done
        ours.step(batch)
        assert bool(waited) == waits


def test_the_exchange_averages_and_a_lone_step_does_not(trainer):
    graph = perceptron()
    ours = trainer(strategy="pmap", batch=8)
    batch = built(ours, graph)
    ours.forward(batch)
    ours.backward()
    local = {name: np.asarray(tensor) for name, tensor in ours._gradients.items()}
    for _ in range(2):  # asked again, it averages the same gradients again
        ours.communicate()
        for name, tensor in ours._gradients.items():
            assert not np.array_equal(local[name][0], local[name][1])
            for device in range(2):
                np.testing.assert_allclose(tensor[device], local[name].mean(0), rtol=1e-6, atol=1e-9)
    ours.update()
    for step, equal in ((ours.step, True), (ours.step_alone, False), (ours.step, False)):
        step(batch)
        first, second = (np.asarray(shard.data) for shard in ours._state[0]["fc2.weight"].addressable_shards)
        assert np.array_equal(first, second) == equal


@pytest.mark.parametrize("strategy", ["single", "pmap"])
def test_devices_hold_their_own_samples_in_order(trainer, strategy):
    ours, graph = trainer(strategy=strategy, batch=8), perceptron()
    batch = built(ours, graph)
    whole = synthetic(graph, 8, 1).inputs.transpose(0, 2, 3, 1)
    parts = [shard.data for shard in sorted(batch.inputs.addressable_shards, key=lambda shard: shard.device.id)]
    assert len(parts) == len(ours._devices)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_state_is_donated(trainer):
    ours = trainer()
    batch = built(ours, perceptron(), 2)
    ours.step(batch)
    before = ours._state[0]["fc2.weight"]
    ours.step(batch)
    assert before.is_deleted()


def test_masks_of_dropout_follow_the_seed_and_the_device(trainer):
    graph, losses = perceptron(), []
    for changes in ({}, {}, {"seed": 2}):
        ours = trainer(batch=8, **changes)
        batch = built(ours, graph)
        ours.step(batch)
        losses.append(ours.loss())
        ours.step(batch)
        losses.append(ours.loss())
    assert losses[:2] == losses[2:4]
    assert losses[4] != losses[0]
    ours = trainer(strategy="pmap", batch=8)
    half = synthetic(graph, 4, 1)
    ours.build(graph, dict(weights.initial(graph)))
    ours.step(ours.to_device(type(half)(*(np.concatenate([each, each]) for each in half))))
    first, second = np.asarray(ours._loss)
    assert first != second, "equal samples, other masks"


def test_segments_are_computed_again_and_train_alike(trainer):
    """With dropout in the segment that is computed again, whose gradient would be wrong with another mask."""
    found, graph = [], perceptron()
    for segments in (1, 2):
        ours = trainer(batch=8, tuning="default", checkpoint_segments=segments)
        ours.build(graph, drawn(graph))
        ours.forward(ours.to_device(synthetic(graph, 8, 1)))
        ours.backward()
        found.append([ours.loss(), *(each.tolist() for each in ours.gradients().values())])
        state = ours._state
        made = jax.make_jaxpr(ours._net.forward)(state.params, {}, np.zeros((8, 4, 4, 3), np.float32), state.key)
        again = [each for each in made.jaxpr.eqns if each.primitive.name in ("checkpoint", "remat2")]
        assert len(again) == segments - 1
    np.testing.assert_allclose(found[0][0], found[1][0])
    for kept, again in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_allclose(kept, again, rtol=1e-6)
    with raising(Unsupported):
        ours.layer_times(None)


def test_a_missing_gpu_is_said(trainer, monkeypatch):
    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("there is a GPU here")
    for there, remedy in ((None, r"install its plugin \(jax\[cuda13\]\)"), (True, "see whether nvidia-smi lists")):
        monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name, there=there: there)
        with pytest.raises(Unavailable, match=rf"CUDA device: JAX .* {remedy}.*'cpu'"):
            trainer(device="cuda")


def test_xla_is_shown_a_rank_s_own_gpus_alone(monkeypatch):
    shown = {}
    monkeypatch.setattr(machine, "uuids", lambda: ["a", "b", "c", "d"])
    monkeypatch.setattr(jax.config, "update", shown.__setitem__)
    monkeypatch.setattr(jax, "devices", lambda platform: [platform + shown["jax_cuda_visible_devices"]])
    setup = trainers.setup(device="cuda", local_rank=2)
    assert machine.cuda(setup) == ["cuda2"]
    with pytest.raises(Unavailable, match="local rank 4 wants 1 GPU"):
        machine.cuda(setup._replace(local_rank=4))


def test_more_devices_than_there_are_is_said(trainer):
    with raising(Unavailable, 3, 2):
        trainer(strategy="pmap", devices=3)


THREADS = """
import time
import numpy as np
from stagebench.suite.worker.feed import synthetic
from tests.support.trainers import setup
from stagebench.workloads import weights
from stagebench.workloads.networks.mnist import mnist_large
from tests.support.trainers import by_strategy

trainer = by_strategy("jax")

ours = trainer(setup(batch=16, tuning="tuned"))
ours.start()
graph = mnist_large()
ours.build(graph, dict(weights.initial(graph)))
batch = ours.to_device(synthetic(graph, 16, 1))
ours.step(batch)
ours.synchronize()
begin, computed, called = time.perf_counter(), time.process_time(), []
for _ in range(30):
    asked = time.perf_counter()
    ours.step(batch)
    returned = time.perf_counter()
    ours.synchronize()
    called.append((returned - asked) / (time.perf_counter() - asked))
whole = time.perf_counter() - begin
print((time.process_time() - computed) / whole, min(called))
"""


def test_one_thread_computes_and_its_host_runs_ahead():
    """Processor time over wall time: a busy machine makes it less, a second thread that computes makes it more."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    for name in ("NPROC", "XLA_FLAGS"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", THREADS], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    computed, called = map(float, done.stdout.split())
    assert computed < 1.25
    assert called < 0.5, "a step's call returns before the step is done, on a busy machine now and then"


@pytest.mark.parametrize("steps", [1, 4])
def test_a_step_lasts_until_the_device_is_done(trainer, steps):
    """The time between two marks of the host alone would be that of asking for a step."""
    assert trainers.share_of_steps(trainer(batch=64), by_name()["mnist_small"].graph(), steps) > 0.9


def test_versions_name_what_decides_the_speed(trainer, monkeypatch):
    assert {"jax", "jaxlib", "xla"} == set(machine.versions(trainer()._devices))
    plugin = SimpleNamespace(cuda_runtime_get_version=lambda: 12090, cudnn_get_version=lambda: 91200)
    monkeypatch.setattr(machine, "PLUGINS", ("played_plugin",))
    monkeypatch.setitem(sys.modules, "played_plugin", SimpleNamespace(_versions=plugin))
    monkeypatch.setitem(sys.modules, "played_plugin._versions", plugin)
    client = SimpleNamespace(platform_version="PJRT C API\ncuda 12090")
    found = machine.versions([SimpleNamespace(platform="gpu", client=client, device_kind="NVIDIA H100 80GB HBM3")])
    assert found["xla"] == "PJRT C API cuda 12090"
    assert (found["cuda"], found["cudnn"], found["gpu"]) == ("12.9", "91200", "NVIDIA H100 80GB HBM3")


def test_a_plugin_that_does_not_tell_its_versions_is_no_failure(monkeypatch):
    monkeypatch.setattr(machine, "PLUGINS", ("played_plugin",))
    monkeypatch.setitem(sys.modules, "played_plugin", None)
    assert machine.cuda_versions() == {}


def test_memory_of_all_of_a_rank_s_gpus_is_added_up(trainer):
    ours = trainer()
    assert ours.peak_device_bytes() is None, "a CPU keeps no statistics"
    told = [{"peak_bytes_in_use": 100}, {"peak_bytes_in_use": 1000}]
    ours._devices = [SimpleNamespace(memory_stats=lambda each=each: each) for each in told]
    assert ours.peak_device_bytes() == 1100


@pytest.mark.parametrize(
    ("precision", "multiplied"),
    [("float32", "float32"), ("tf32", "float32"), ("bfloat16", "bfloat16"), ("float16", "float16")],
)
def test_the_framework_s_own_yardstick_multiplies_and_copies(trainer, precision, multiplied):
    ours = trainer(precision=precision)
    yardstick = machine.yardstick(ours.setup, ours._devices)
    (product,), (copy,) = yardstick.product(16)(), yardstick.copy(64)()
    assert (tuple(product.shape), str(product.dtype)) == ((16, 16), multiplied)
    assert np.asarray(copy).nbytes == 64
    assert yardstick.library.startswith("JAX ")
    # NumPy serves every framework alike on CPUs, as far as it knows the precision.
    assert ours.yardstick().library.startswith("NumPy " if precision == "float32" else "JAX ")


class TestAlike(Alike):
    module, counting = "jax", ("default", "tuned")
    timing, in_order = ({}, {"strategy": "pmap", "tuning": "default"}, {"precision": "bfloat16"}), False
    words = "batches taken out of memory (JAX has no reader of its own)"
    updates = (*EVERY, {"rule": "large", "precision": "float32", "tuning": "default", "strategy": "pmap"})
    test_a_missing_device_is_named = None  # above: its remedies are two
    test_masks_of_dropout_follow_the_seed_and_the_rank = None  # above: one process drives all devices


class TestReading(Reading):
    most = 0.01
