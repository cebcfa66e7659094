"""The trainer on one rank: proof, machine, what the loop needs."""

import contextlib
import copy
import shutil

import numpy as np
import pytest
import torch

from stagebench.adapters.pytorch import machine
from stagebench.adapters.pytorch.exchange import buckets
from stagebench.adapters.pytorch.net import Net
from stagebench.adapters.pytorch.replica import put_back, state_of
from stagebench.suite.worker.contract import Unavailable, Unsupported
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from tests.adapters.alike import Alike
from tests.support import networks, proofs, trainers
from tests.support.errors import raising
from tests.support.trainers import by_strategy

DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]
FORMATS = ("contiguous", "channels_last")


def test_bfloat16_computes_in_bfloat16_and_keeps_float32_weights(trainer, tmp_path):
    graph = networks.two_heads()
    proofs.write_oracle(graph, 8, tmp_path)
    proof = proofs.prove(trainer(precision="bfloat16", batch=8), graph, 8, str(tmp_path))
    assert 1e-4 < proof["errors"]["logits"]["logits"] < 5e-2  # eight bits of mantissa
    np.testing.assert_allclose(proof["losses"]["native"], proof["losses"]["oracle"], rtol=3e-2)
    assert proof["losses"]["native"] == proof["losses"]["staged"]


@pytest.mark.parametrize("device", DEVICES)
def test_float16_scales_its_losses_and_hands_out_gradients_without_the_scale(trainer, tmp_path, device):
    graph = networks.two_heads()
    proofs.write_oracle(graph, 8, tmp_path)
    ours = trainer(precision="float16", batch=8, device=device)
    proof = proofs.prove(ours, graph, 8, str(tmp_path))
    assert 1e-5 < proof["errors"]["logits"]["logits"] < 2e-2  # eleven bits of mantissa
    assert max(proof["errors"]["gradient"].values()) < 0.1
    np.testing.assert_allclose(proof["losses"]["native"], proof["losses"]["oracle"], rtol=5e-3)
    assert ours._scaler.get_scale() == 1024.0


@pytest.mark.parametrize("device", DEVICES)
def test_float16_skips_an_update_whose_gradients_are_too_large_and_halves_the_scale(trainer, device):
    graph = networks.two_heads()
    ours = trainer(precision="float16", batch=8, device=device)
    ours.build(graph, dict(weights.initial(graph)))
    batch = ours.to_device(synthetic(graph, 8, 1))
    ours.step(batch)
    before = ours.parameters()
    ours.forward(batch)
    ours.backward()
    next(parameter for _, parameter in ours._net.trainable()).grad.fill_(float("inf"))
    ours.update()
    trainable = [name for name, _ in ours._net.trainable()]
    after = ours.parameters()
    assert all(np.array_equal(before[name], after[name]) for name in trainable)
    assert ours._scaler.get_scale() == 512.0


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_float16_trains_on_when_its_first_update_was_skipped(trainer, tuning):
    graph = networks.two_heads()
    ours = trainer(precision="float16", batch=8, tuning=tuning)
    ours.build(graph, dict(weights.initial(graph)))
    batch = ours.to_device(synthetic(graph, 8, 1))
    ours.forward(batch)
    ours.backward()
    next(parameter for _, parameter in ours._net.trainable()).grad.fill_(float("inf"))
    ours.update()
    before = ours.parameters()
    ours.step(batch)
    moved = [np.abs(values - before[name]).max() for name, values in ours.parameters().items()]
    assert 0 < max(moved) < 1


def test_what_a_recording_trained_is_put_back(trainer):
    graph = networks.two_heads().without_dropout()
    ours, reference = trainer(batch=8, tuning="tuned"), trainer(batch=8, tuning="tuned")
    for each in (ours, reference):
        each.build(graph, dict(weights.initial(graph)))
    batch = ours.to_device(synthetic(graph, 8, 1))
    kept = {each.data_ptr(): each.detach().clone() for each in state_of(ours._net, ours._optimiser)}
    for _ in range(3):
        ours.step(batch)
    put_back(kept, state_of(ours._net, ours._optimiser))
    for _ in range(2):
        ours.step(batch)
        reference.step(batch)
    theirs = reference.parameters()
    assert all(np.array_equal(values, theirs[name]) for name, values in ours.parameters().items())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_layers_are_timed_within_a_backward_that_goes_through_them_in_turn(trainer, precision):
    graph = networks.two_heads()
    ours, shares = trainer(batch=8, precision=precision), []
    for _ in range(trainers.LOOPS):  # whatever else the machine does comes between, and may look like more
        rows = trainers.timed_layers(ours, graph)
        ready = [row.ready_s for row in rows if row.bytes]
        assert ready == sorted(ready, reverse=True)
        shares.append(ready[0] / sum(row.backward_s for row in rows))
    assert min(shares) <= 1.5
    assert {row.layer: row for row in rows}["r1"].backward_s > 0, "it writes over its input"
    assert all(parameter.grad is None for _, parameter in ours._net.trainable())


def test_a_dropout_that_drops_nothing_takes_none_of_its_neighbours_time(trainer):
    rows = trainers.timed_layers(trainer(batch=8), networks.two_heads().without_dropout())
    assert {row.layer: row.backward_s for row in rows}["d"] == 0


def test_fused_layers_cannot_be_told_apart(trainer):
    ours = trainer(batch=8)
    ours._compiled = True
    with pytest.raises(Unsupported, match="fuses layers"):
        ours.layer_times(None)


def test_segments_keep_less_and_train_alike(trainer):
    """With dropout in the segment that is computed again, whose gradient would be wrong with another mask."""
    found, kept = [], []
    for segments in (1, 2):
        ours, sizes = trainer(batch=8, checkpoint_segments=segments), []
        graph = networks.perceptron()
        ours.build(graph, networks.drawn(graph))
        batch = ours.to_device(synthetic(graph, 8, 1))

        def packed(tensor, sizes=sizes):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
            ours.forward(batch)
        kept.append(sum(sizes))
        ours.backward()
        found.append([ours.loss(), *(each.tolist() for each in ours.gradients().values())])
    assert found[0] == found[1]
    assert kept[1] < kept[0]
    with raising(Unsupported):
        ours.layer_times(batch)
    with raising(Unsupported, 2, "small"):
        ours.build(networks.two_heads(), dict(weights.initial(networks.two_heads())))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch 2.13's compiler warns of itself
def test_compiled_it_takes_the_same_steps(trainer):
    b = Builder("tiny", (1, 6, 6), 3)
    b.head(b.dense("fc", b.relu("relu", b.flatten("flat", "input")), 3))
    losses = []
    for compiled in (False, True):
        ours = trainer(batch=4, compile=compiled)
        ours.build(b.graph, dict(weights.initial(b.graph)))
        batch = ours.to_device(synthetic(b.graph, 4, 1))
        losses.append([ours.step(batch) or ours.loss() for _ in range(3)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-6)


def test_a_missing_compiler_is_said(trainer, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Unavailable, match=r"C\+\+ compiler .*g\+\+"):
        trainer(compile=True)


@pytest.mark.parametrize(
    ("lacks", "said"),
    [(None, None), ("gcc", "there is none; install gcc or set CC"), ("Python.h", r"there is no .*Python\.h")],
)
def test_what_triton_lacks_to_compile_for_a_gpu_is_said(monkeypatch, tmp_path, lacks, said):
    for name in {"gcc", "Python.h"} - {lacks}:
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(machine.sysconfig, "get_config_var", lambda name: str(tmp_path))
    with gpus(1):
        if said is None:
            assert machine.prepare(trainers.setup(device="cuda"), compiled=True) == torch.device("cuda", 0)
        else:
            with pytest.raises(Unavailable, match=f"compiles its kernels' launchers in C .*{said}"):
                machine.prepare(trainers.setup(device="cuda"), compiled=True)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_a_gpu_rounds_to_tf32_only_where_that_is_asked_for(precision):
    with gpus(1):
        machine.prepare(trainers.setup(device="cuda", precision=precision))
        assert torch.backends.cudnn.allow_tf32 == torch.backends.cuda.matmul.allow_tf32 == (precision == "tf32")


def test_the_peak_of_several_gpus_is_there_when_the_last_is_done(monkeypatch):
    made, awaited = torch.rand, []
    monkeypatch.setattr(torch, "rand", lambda *shape, device: made(*shape))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", awaited.append)
    setup = trainers.setup(strategy="dp", device="cuda", devices=2)
    assert [product.shape for product in machine.yardstick(setup).product(4)()] == [(4, 4), (4, 4)]
    by_strategy("pytorch")(setup).synchronize()
    assert awaited == [0, 1]


def test_tuning_decides_what_auto_means(trainer):
    graph = networks.two_heads()
    for tuning, layout in (("tuned", "channels_last"), ("default", "contiguous_format")):
        ours = trainer(tuning=tuning)
        ours.build(graph, dict(weights.initial(graph)))
        assert ours.notes()["memory_format"] == layout


def test_it_computes_on_as_many_threads_as_were_asked_for(trainer):
    trainer()
    assert torch.get_num_threads() == 1


def test_buckets_are_closed_when_they_are_full():
    tensors = [torch.zeros(n) for n in (10, 300, 10, 10, 1000)]
    sizes = [[x.numel() for x in bucket] for bucket in buckets(tensors, [1024])]
    assert sizes == [[10, 300], [10, 10, 1000]]
    sizes = [[x.numel() for x in bucket] for bucket in buckets(tensors, [40, 1240])]
    assert sizes == [[10], [300, 10], [10, 1000]]


def test_memory_of_all_of_a_rank_s_gpus_is_added_up(trainer, monkeypatch):
    ours = trainer()
    assert ours.peak_device_bytes() is None, "a CPU has no allocator of its own"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda number: 10**number)
    ours._on_cuda = True
    ours.setup = ours.setup._replace(device="cuda", devices=2, local_rank=1)
    assert ours.peak_device_bytes() == 1100
    ours._on_cuda = False


class TestAlike(Alike):
    framework, library, module, meets, words = "PyTorch", "torch", "torch", "ddp", "memory"
    timing = ()  # above: within a backward, with its time
    reading = ({"tuning": "default"}, {"tuning": "tuned"})
    lowering = tuple({"tuning": how, "memory_format": order} for how in ("default", "tuned") for order in FORMATS)

    def devices(self):
        return torch.cuda.device_count()

    def draw(self):
        torch.rand(3)

    def yardstick(self, ours):
        return machine.yardstick(ours.setup)


SWITCHES = (
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "benchmark"),
    (torch.utils.deterministic, "fill_uninitialized_memory"),
)


@contextlib.contextmanager
def gpus(count):
    """So many; all switches are on before, and put back after. (To monkeypatch, torch's are no attributes.)"""
    before = [getattr(where, name) for where, name in SWITCHES]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
        try:
            for where, name in SWITCHES:
                setattr(where, name, True)
            yield
        finally:
            for (where, name), value in zip(SWITCHES, before, strict=True):
                setattr(where, name, value)


def test_a_copy_of_a_network_runs_its_own_layers():
    """As DataParallel copies it: torch puts the copies of its submodules in place, and nothing else."""
    graph = networks.two_heads().without_dropout()
    original = Net(graph, dict(weights.initial(graph)), fast=False)
    copied = original._replicate_for_data_parallel()
    copied.layers = copy.deepcopy(original.layers)
    with torch.no_grad():
        for parameter in copied.layers.parameters():
            parameter.zero_()
    copied.follow(original)
    images = torch.from_numpy(synthetic(graph, 2, 1).inputs)
    assert all(not head.any() for head in copied(images))
    assert all(head.any() for head in original(images))
