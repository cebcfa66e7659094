"""The exchanging strategies on two real ranks."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from stagebench.suite.worker.contract import SGD, Adam
from tests.support.processes import found_by, mpi_variables, mpiexec, rank_tokens, saved_by

SAMPLES = 8  # of all ranks
OPTIMISERS = {"sgd": SGD(0.01, 0.9, 1e-3), "adam": Adam(1e-3, 0.9, 0.99, 1e-3, 1e-2)}

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec; apt-get install openmpi-bin")


def run_ranks(folder, strategy, *steps, **options):
    """What each rank found, and its parameters after each step."""
    ranks, optimiser = options.get("ranks", 2), OPTIMISERS[options.get("optimiser", "sgd")]
    (folder / "steps.json").write_text(json.dumps(steps))
    program = Path(__file__).with_name("rank.py")
    changing = options.get("changing_rate", False)
    asked = {"batch": SAMPLES // ranks, "optimiser": optimiser, "changing_rate": changing}
    tokens = rank_tokens(program, "steps", folder, strategy=strategy, **asked)
    subprocess.run(mpiexec() + ["-n", str(ranks)] + tokens, env=mpi_variables(), check=True, timeout=300)
    return found_by(folder, ranks), [saved_by(folder, "after%d" % number, ranks) for number in range(len(steps))]


def alike(pair):
    return all(np.array_equal(pair[0][name], pair[1][name]) for name in pair[0])


def test_ranks_join_and_gradients_are_averaged(tmp_path):
    found, after = run_ranks(tmp_path, "data_parallel", "averaged", "native", "alone")
    for rank, each in enumerate(found):
        assert each["joined"][:2] == [rank, 2]
        assert each["joined"][3].startswith("mpi: Open MPI v")
        assert each["maximum"] == 1.0
    local, shared = saved_by(tmp_path, "local"), saved_by(tmp_path, "shared")
    for name in local[0]:
        assert not np.array_equal(local[0][name], local[1][name])
        for rank in range(2):  # also after a second call: it averages the same gradients again
            expected = local[0][name] / 2 + local[1][name] / 2
            np.testing.assert_allclose(shared[rank][name], expected, rtol=1e-5, atol=1e-8)
    assert [alike(pair) for pair in after] == [True, True, False]


@pytest.mark.parametrize("kind", ["native", "staged"])
def test_one_bit_ranks_stay_alike_and_differ_from_the_average_of_32_bits(tmp_path, kind):
    _, after = run_ranks(tmp_path, "one_bit_sgd", kind, kind)
    assert all(alike(pair) for pair in after)
    (tmp_path / "all_bits").mkdir()
    _, all_bits = run_ranks(tmp_path / "all_bits", "data_parallel", kind, kind)
    assert any(not np.array_equal(after[0][0][name], all_bits[0][0][name]) for name in after[0][0])


@pytest.mark.parametrize("kind", ["native", "staged"])
def test_block_momentum_joins_the_models_when_a_block_ends(tmp_path, kind):
    found, after = run_ranks(tmp_path, "block_momentum", *([kind] * 6))
    assert [alike(pair) for pair in after] == [False, False, True, False, False, True]
    assert all(each["gradient_bytes"] == -(-4 * each["parameters"] // 3) for each in found), "a step's mean"


MIXED = ("native", "staged") * 3


@pytest.mark.parametrize("strategy", ["data_parallel", "one_bit_sgd", "block_momentum"])
def test_the_learner_whose_rate_may_change_trains_as_cntk_s_own(tmp_path, strategy):
    _, fixed = run_ranks(tmp_path, strategy, *MIXED)
    (tmp_path / "changing").mkdir()
    _, changing = run_ranks(tmp_path / "changing", strategy, *MIXED, changing_rate=True)
    for pair, others in zip(fixed, changing):
        for ours, theirs in zip(pair, others):
            for name in ours:
                np.testing.assert_allclose(theirs[name], ours[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_two_ranks_adam_is_one_ranks_with_the_joined_batch(tmp_path):
    _, after = run_ranks(tmp_path, "data_parallel", *MIXED, optimiser="adam")
    (tmp_path / "one").mkdir()
    _, alone = run_ranks(tmp_path / "one", "data_parallel", *MIXED, optimiser="adam", ranks=1)
    for pair, [single] in zip(after, alone):
        assert alike(pair)
        for name in single:
            np.testing.assert_allclose(pair[0][name], single[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("strategy", "joined"),
    [("one_bit_sgd", [True] * 6), ("block_momentum", [False, False, True, False, False, True])],
)
def test_the_other_strategies_exchange_around_adam(tmp_path, strategy, joined):
    found, after = run_ranks(tmp_path, strategy, *MIXED, optimiser="adam")
    assert [alike(pair) for pair in after] == joined
    assert all(np.isfinite(each["losses"]).all() and each["losses"][-1] < each["losses"][0] for each in found)
