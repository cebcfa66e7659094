"""The exchange on real MPI ranks."""

import pytest

GROUPS = [[0, 2500], [2500, 6016], [6016, 7000]]
# Of 1000 elements at most, and none of two groups.
PIECES = [[0, 1000], [1000, 2000], [2000, 2500], [2500, 3500], [3500, 4500], [4500, 5500], [5500, 6016], [6016, 7000]]


@pytest.mark.parametrize("ranks", [3, 4])
def test_sums_arrive_whole_and_every_piece_once(ranks, mpirun):
    output = mpirun("mpi_exchange.py", ranks)
    assert output["nodes"] == {"data_parallel": 1, "library": 1, "parameter_server": 1, "two_level": (ranks + 1) // 2}
    for found in output["found"]:
        assert len(found) == 12 + 12 + 3
        for way, result in found.items():
            assert result["right"] == [True] * (20 if way.endswith("whole") else 45), way
            assert sorted(result["order"]) == (GROUPS if way.endswith("whole") else PIECES)
            assert sorted(trigger for trigger, _ in result["timed"]) == [0] * 5 + [2] * 5 + [4] * 5
            assert all(seconds > 0 for _, seconds in result["timed"])
    assert output["failure"] == "piece 0 is lost"
    assert output["maximum"] == ranks - 1
    groups, (startup, slope) = output["plans"][0]
    assert all(plan == output["plans"][0] for plan in output["plans"]), "ranks follow different plans"
    assert sorted(layer for _, layers, _ in groups for layer in layers) == [0, 2, 3, 4]
    assert 0 <= startup < 1
    assert 0 <= slope < 1e-3  # nothing, where a busy machine drowns what the bytes take
