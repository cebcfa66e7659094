"""The trainer on one rank, and what it must not use."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suite.worker.contract import SGD, Unsupported
from suite.worker.feed import synthetic
from suite.worker.sources import ArraySource
from tests.support import networks, trainers
from tests.support.trainers import by_strategy
from workloads import weights
from workloads.build import Builder
from workloads.networks.mnist import mnist_small

trainer_of = by_strategy("caffempi")

ROOT = Path(__file__).resolve().parents[3]
POISONED = """
import sys
import numpy as np, torch
import torch.distributed

def refuse(*args, **kwargs):
    raise AssertionError("used")

for place, names in ((torch.autograd, ("backward", "grad")), (torch.Tensor, ("backward", "requires_grad_")),
                     (torch.distributed, ("init_process_group", "all_reduce", "broadcast"))):
    for name in names:
        setattr(place, name, refuse)

from suite.worker.feed import synthetic
from suite.worker.contract import SGD
from tests.support.trainers import setup
from workloads import weights
from workloads.networks.mnist import mnist_small
from tests.support.trainers import by_strategy

trainer = by_strategy("caffempi")

trainer = trainer(setup(tuning="tuned", optimiser=SGD(0.002, 0.9, 0.0)))
trainer.start()
trainer.build(mnist_small(), dict(weights.initial(mnist_small())))
batch = trainer.to_device(synthetic(mnist_small(), 4, 1))
losses = []
for _ in range(5):
    trainer.step(batch)
    losses.append(trainer.loss())
assert losses[-1] < losses[0], losses
assert not torch.distributed.is_initialized()
assert not any(t.requires_grad for t in (trainer._net.arena.parameters, trainer._net.arena.gradients))
assert "mpi4py" not in sys.modules, "one rank needs no MPI"
trainer.close()
"""


def trainer(**changes: Any) -> Any:
    made = trainer_of(trainers.setup(**{"optimiser": SGD(0.05, 0.9, 0.001), "readers": 2, **changes}))
    joined = made.start()
    assert (joined.rank, joined.world, joined.transport) == (0, 1, "none")
    made.build(mnist_small(), dict(weights.initial(mnist_small())))
    return made


def test_neither_autograd_nor_torch_distributed_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", POISONED], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_source_names_neither_of_them() -> None:
    for path in (ROOT / "adapters" / "caffempi").rglob("*.py"):
        text = path.read_text()
        for word in ("torch.distributed", "requires_grad", "torch.autograd", "torch.nn"):
            assert word not in text, f"{path} mentions {word}"


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_native_and_staged_iterations_are_the_same(tuning: str) -> None:
    found = []
    for staged in (False, True):
        made = trainer(tuning=tuning)
        batch = made.to_device(synthetic(mnist_small(), 4, 1))
        for _ in range(3):
            if staged:
                trainers.staged(made, batch)
            else:
                made.step(batch)
        found.append((made.loss(), made.parameters()))
    assert found[0][0] == found[1][0]
    for name, tensor in found[0][1].items():
        np.testing.assert_array_equal(tensor, found[1][1][name])


def test_a_second_build_starts_afresh() -> None:
    made = trainer()
    batch = made.to_device(synthetic(mnist_small(), 4, 1))
    losses = []
    for _ in range(2):
        made.build(mnist_small(), dict(weights.initial(mnist_small())))
        for _ in range(3):
            made.step(batch)
        losses.append(made.loss())
    assert losses[0] == losses[1]


def test_multiply_accumulates_are_counted_without_moving_anything() -> None:
    b = Builder("bn", (2, 6, 6), 3)
    b.head(b.dense("fc", b.flatten("flat", b.conv_bn("conv", "input", 4, 3)), 3))
    made = trainer()
    made.build(b.graph, dict(weights.initial(b.graph)))
    before = made.parameters()
    assert made.macs() == b.graph.macs == 4 * 16 * 18 + 3 * 64
    for name, tensor in made.parameters().items():
        np.testing.assert_array_equal(tensor, before[name])


def test_masks_of_dropout_are_the_same_after_every_build_and_left_alone_by_a_trial() -> None:
    made, losses = trainer(), []
    batch = made.to_device(synthetic(networks.perceptron(dropout=0.5), 4, 1))
    for counted in (False, True):
        made.build(networks.perceptron(dropout=0.5), dict(weights.initial(networks.perceptron(dropout=0.5))))
        if counted:
            made.macs()
        made.step(batch)
        losses.append(made.loss())
    assert losses[0] == losses[1]


def test_every_layer_has_its_times() -> None:
    made = trainer()
    batch = made.to_device(synthetic(mnist_small(), 4, 1))
    for _ in range(3):
        made.forward(batch)
        made.backward()
        made.update()
    rows = made.layer_times(None)
    assert [row.layer for row in rows] == [layer.name for layer in mnist_small().layers] + ["loss"]
    assert all(row.forward_s > 0 and row.communication_s == 0 for row in rows)
    assert rows[0].backward_s > 0
    assert sum(row.bytes for row in rows) == mnist_small().gradient_bytes()


def test_layer_times_are_those_since_they_were_forgotten() -> None:
    made = trainer()
    batch = made.to_device(synthetic(mnist_small(), 4, 1))
    made.forward(batch)
    made.backward()
    made.update()
    made.forget_layer_times()
    assert all(row.forward_s == row.backward_s == 0 for row in made.layer_times(None))
    made.forward(batch)
    assert all(row.forward_s > 0 and row.backward_s == 0 for row in made.layer_times(None))


def test_real_samples_are_trained_with(tmp_path: Path) -> None:
    pixels = np.random.RandomState(0).randint(0, 255, (12, 28, 28)).astype(np.uint8)
    np.savez(tmp_path / "digits.npz", images=pixels, labels=np.arange(12) % 10)
    made = trainer()
    made.open_input(ArraySource(str(tmp_path / "digits.npz"), (1, 28, 28)))
    made.step(made.to_device(made.next_batch()))
    assert np.isfinite(made.loss())
    made.close()


def test_a_layer_that_is_not_here_is_refused() -> None:
    graph = mnist_small()
    graph.layers[0].kind = "deconv"
    with pytest.raises(Unsupported, match="'conv1' of kind 'deconv'"):
        trainer().build(graph, {})
