"""What the tests of the Caffe-MPI style trainer share: autograd as the judge, and real MPI groups."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.adapters.alike import trainer_of
from tests.support import processes

try:
    import mpi4py  # noqa: F401 - only asked for
    import torch
    import torch.nn.functional as F  # noqa: N812 - its usual name
except ImportError:  # the declaration can be tested without the framework
    collect_ignore_glob = ["test_[!p]*.py"]


trainer = trainer_of("caffempi")


def lrn(x: Any, a: dict[str, Any]) -> Any:
    """Local response normalisation by the definition in workloads.kinds, channel by channel."""
    channels = range(x.shape[1])
    windows = [range(max(0, c - a["size"] // 2), min(x.shape[1], c + (a["size"] - 1) // 2 + 1)) for c in channels]
    sums = torch.stack([sum(x[:, i] ** 2 for i in window) for window in windows], 1)
    return x * (a["k"] + a["alpha"] / a["size"] * sums) ** -a["beta"]


def norm(x: Any, a: dict[str, Any], p: dict[str, Any]) -> Any:
    return F.batch_norm(x, None, None, p["weight"], p["bias"], True, 0.0, a["eps"])


# kind -> (inputs, attributes, parameters by role) to output, in operators that autograd differentiates
DEFINITIONS: dict[str, Callable[[list[Any], dict[str, Any], dict[str, Any]], Any]] = {
    "conv": lambda x, a, p: F.conv2d(x[0], p["weight"], p.get("bias"), a["stride"], a["pad"], 1, a["groups"]),
    "dense": lambda x, a, p: F.linear(x[0], p["weight"], p.get("bias")),
    "relu": lambda x, a, p: torch.clamp_min(x[0], 0),
    "max_pool": lambda x, a, p: F.max_pool2d(x[0], a["kernel"], a["stride"], a["pad"], ceil_mode=a["ceil"]),
    "avg_pool": lambda x, a, p: F.avg_pool2d(x[0], a["kernel"], a["stride"], a["pad"], a["ceil"], a["count_padding"]),
    "lrn": lambda x, a, p: lrn(x[0], a),
    "batch_norm": lambda x, a, p: norm(x[0], a, p),
    "dropout": lambda x, a, p: x[0],
    "concat": lambda x, a, p: torch.cat(x, 1),
    "add": lambda x, a, p: sum(x[1:], x[0]),
    "flatten": lambda x, a, p: x[0].flatten(1),
}


@pytest.fixture
def judge() -> Callable[..., tuple[float, dict[str, Any]]]:
    """(loss, gradient by parameter name) of a graph by autograd in float64."""

    def judged(graph: Any, weights: dict[str, Any], images: Any, labels: Any) -> tuple[float, dict[str, Any]]:
        leaves = {name: torch.tensor(w, dtype=torch.float64, requires_grad=True) for name, w in weights.items()}
        blobs = {"input": torch.tensor(images, dtype=torch.float64)}
        for layer in graph.layers:
            own = {p.name.rpartition(".")[2]: leaves[p.name] for p in layer.parameters}
            blobs[layer.name] = DEFINITIONS[layer.kind]([blobs[i] for i in layer.inputs], layer.attrs, own)
        loss = sum(h.weight * F.cross_entropy(blobs[h.layer], torch.tensor(labels)) for h in graph.heads)
        loss.backward()
        return float(loss.detach()), {name: leaf.grad.numpy() for name, leaf in leaves.items()}

    return judged


@pytest.fixture
def mpirun(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run one of the programs beside the tests on some ranks; gives the JSON that its rank 0 wrote."""

    def run(program: str, ranks: int, *arguments: str) -> dict[str, Any]:
        output = tmp_path / "output.json"
        engine = [*(processes.mpiexec() or ["mpiexec"]), "-n", str(ranks)]
        command = [*engine, sys.executable, str(Path(__file__).with_name(program)), str(output), *arguments]
        environ = processes.mpi_variables()
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        found: dict[str, Any] = json.loads(output.read_text())
        assert found["world"] == ranks
        return found

    return run


@pytest.fixture
def far() -> Callable[[Any, Any], float]:
    """The distance of two arrays relative to the second, or absolute where that one is all but zero."""

    def distance(ours: Any, theirs: Any) -> float:
        assert ours.shape == theirs.shape
        return float(np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-3))

    return distance
