"""The exchanging strategies on two real ranks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]

MPIEXEC = os.environ.get("STAGEBENCH_MPIEXEC", "mpiexec")

pytestmark = pytest.mark.skipif(shutil.which(MPIEXEC) is None, reason="no mpiexec; apt-get install openmpi-bin")


def run_ranks(folder, strategy, *steps, optimiser="sgd", ranks=2):
    """What each rank found, and its parameters after each step."""
    environ = dict(os.environ, PYTHONPATH=str(ROOT), OMPI_MCA_mpi_yield_when_idle="1")
    environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    tokens = [MPIEXEC, "-n", str(ranks), "--oversubscribe", "--bind-to", "none", sys.executable]
    script = str(Path(__file__).with_name("rank.py"))
    subprocess.run(
        tokens + [script, strategy, str(folder), optimiser] + list(steps), env=environ, check=True, timeout=60
    )
    found = [json.loads((folder / ("found-%d.json" % rank)).read_text()) for rank in range(ranks)]
    return found, [saved(folder, "after%d" % number, ranks) for number in range(len(steps))]


def saved(folder, name, ranks=2):
    return [np.load(str(folder / ("%s-%d.npz" % (name, rank)))) for rank in range(ranks)]


def alike(pair):
    return all(np.array_equal(pair[0][name], pair[1][name]) for name in pair[0].files)


def test_ranks_join_and_gradients_are_averaged(tmp_path):
    found, after = run_ranks(tmp_path, "data_parallel", "averaged", "native", "alone")
    for rank, each in enumerate(found):
        assert each["joined"][:2] == [rank, 2]
        assert each["joined"][2].startswith("mpi: Open MPI v")
        assert each["maximum"] == 1.0
    local, shared = saved(tmp_path, "local0"), saved(tmp_path, "shared0")
    for name in local[0].files:
        assert not np.array_equal(local[0][name], local[1][name])
        for rank in range(2):  # also after a second call: it averages the same gradients again
            expected = local[0][name] / 2 + local[1][name] / 2
            np.testing.assert_allclose(shared[rank][name], expected, rtol=1e-5, atol=1e-8)
    assert [alike(pair) for pair in after] == [True, True, False]


@pytest.mark.parametrize("way", ["native", "staged"])
def test_one_bit_ranks_stay_alike_and_differ_from_the_exact_average(tmp_path, way):
    _, after = run_ranks(tmp_path, "one_bit_sgd", way, way)
    assert all(alike(pair) for pair in after)
    (tmp_path / "exact").mkdir()
    _, exact = run_ranks(tmp_path / "exact", "data_parallel", way, way)
    assert any(not np.array_equal(after[0][0][name], exact[0][0][name]) for name in after[0][0].files)


@pytest.mark.parametrize("way", ["native", "staged"])
def test_block_momentum_joins_the_models_when_a_block_ends(tmp_path, way):
    _, after = run_ranks(tmp_path, "block_momentum", *([way] * 6))
    assert [alike(pair) for pair in after] == [False, False, True, False, False, True]


MIXED = ("native", "staged") * 3


def test_two_ranks_adam_is_one_ranks_with_the_joined_batch(tmp_path):
    _, after = run_ranks(tmp_path, "data_parallel", *MIXED, optimiser="adam")
    (tmp_path / "one").mkdir()
    _, alone = run_ranks(tmp_path / "one", "data_parallel", *MIXED, optimiser="adam", ranks=1)
    for pair, [single] in zip(after, alone):
        assert alike(pair)
        for name in single.files:
            np.testing.assert_allclose(pair[0][name], single[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("strategy", "joined"),
    [("one_bit_sgd", [True] * 6), ("block_momentum", [False, False, True, False, False, True])],
)
def test_the_other_strategies_exchange_around_adam(tmp_path, strategy, joined):
    found, after = run_ranks(tmp_path, strategy, *MIXED, optimiser="adam")
    assert [alike(pair) for pair in after] == joined
    assert all(np.isfinite(each["losses"]).all() and each["losses"][-1] < each["losses"][0] for each in found)
