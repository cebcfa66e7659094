"""The exchange on real MPI ranks."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_arrive_whole_in_the_order_of_backward(ranks: int, mpirun: Callable[..., dict[str, Any]]) -> None:
    output = mpirun("mpi_exchange.py", ranks)
    for found in output["found"]:
        for aggregation in ("allreduce", "parameter_server"):
            result = found[aggregation]
            assert result["right"] == [True] * 20, aggregation
            assert result["order"] == [[6016, 7000], [2500, 6016], [0, 2500]]
            assert [trigger for trigger, _ in result["timed"]] == [4, 2, 0] * 5
            assert all(seconds > 0 for _, seconds in result["timed"])
    assert output["maximum"] == ranks - 1
    groups, (startup, slope) = output["plans"][0]
    assert all(plan == output["plans"][0] for plan in output["plans"]), "ranks follow different plans"
    assert sorted(layer for _, layers, _ in groups for layer in layers) == [0, 2, 3, 4]
    assert 0 <= startup < 1
    assert 0 <= slope < 1e-3  # nothing, where a busy machine drowns what the bytes take
