"""The trainer on one rank, and what it must not use."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from stagebench.suite.worker.contract import SGD, Unsupported
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks.mnist import mnist_small
from tests.adapters.alike import Alike, one_step
from tests.support import networks, proofs, trainers
from tests.support.trainers import by_strategy

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

from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.contract import SGD
from tests.support.trainers import setup
from stagebench.workloads import weights
from stagebench.workloads.networks.mnist import mnist_small
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


def trainer(**changes):
    made = trainer_of(trainers.setup(**{"optimiser": SGD(0.05, 0.9, 0.001), "readers": 2, **changes}))
    joined = made.start()
    assert (joined.rank, joined.world, joined.transport) == (0, 1, "none")
    made.build(mnist_small(), dict(weights.initial(mnist_small())))
    return made


def test_neither_autograd_nor_torch_distributed_is_used():
    done = subprocess.run(
        [sys.executable, "-c", POISONED], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_source_names_neither_of_them():
    for path in (ROOT / "adapters" / "caffempi").rglob("*.py"):
        text = path.read_text()
        for word in ("torch.distributed", "requires_grad", "torch.autograd", "torch.nn"):
            assert word not in text, f"{path} mentions {word}"


def test_a_trial_leaves_the_masks_of_dropout_alone():
    made, losses = trainer(), []
    batch = made.to_device(synthetic(networks.perceptron(dropout=0.5), 4, 1))
    for counted in (False, True):
        made.build(networks.perceptron(dropout=0.5), dict(weights.initial(networks.perceptron(dropout=0.5))))
        if counted:
            made.macs()
        made.step(batch)
        losses.append(made.loss())
    assert losses[0] == losses[1]


def test_layer_times_are_those_since_they_were_forgotten():
    made = trainer()
    batch = made.to_device(synthetic(mnist_small(), 4, 1))
    made.forward(batch)
    made.backward()
    made.update()
    made.forget_layer_times()
    assert all(row.forward_s == row.backward_s == 0 for row in made.layer_times(None))
    made.forward(batch)
    assert all(row.forward_s > 0 and row.backward_s == 0 for row in made.layer_times(None))


def test_a_layer_that_is_not_here_is_refused():
    graph = mnist_small()
    graph.layers[0].kind = "deconv"
    with pytest.raises(Unsupported, match="'conv1' of kind 'deconv'"):
        trainer().build(graph, {})


@pytest.mark.parametrize("bears_loss", [True, False])
def test_a_shared_gradient_is_the_sum_of_its_parts_after_every_backward(bears_loss):
    graph = Graph("shared", (2, 6, 4), 5)
    x = graph.add("cut", "tokens", ("input",), patch=2)
    owner = graph.add("owner", "dense", (x,), out=5, bias=False)
    for number in range(2):
        x = graph.add(f"mixed{number}", "dense", (x,), out=8)
        graph.add_head(graph.add(f"tied{number}", "tied", (x,), to="owner", out=5))
    if bears_loss:
        graph.add_head(owner, 0.3)
    made, samples = trainer(precision="float64"), synthetic(graph, 4, 3)
    _, expected, _ = one_step(proofs.reference(), graph, samples)
    made.build(graph, networks.drawn(graph))
    for _ in range(2):
        made.forward(made.to_device(samples))
        made.backward()
        for name, theirs in expected.items():
            np.testing.assert_allclose(made.gradients()[name], theirs, rtol=1e-7, atol=1e-9, err_msg=name)


class TestAlike(Alike):
    framework, module, words = "PyTorch", "torch", "memory"
    test_layers_are_timed_one_by_one = None  # above: they are timed in every step
    lowering = tuple({"memory_format": order} for order in ("contiguous", "channels_last"))

    def devices(self):
        return torch.cuda.device_count()
