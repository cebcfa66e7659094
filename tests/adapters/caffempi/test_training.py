"""Data-parallel training on real ranks: every way gives what one rank gives on the joined batch."""

import pytest

WAYS = [(4, "sgd", ""), (2, "adam", ""), (3, "adam", "staged")]


@pytest.mark.parametrize(("ranks", "rule", "memory"), WAYS)
def test_every_way_trains_the_same(ranks, rule, memory, mpirun):
    output = mpirun("mpi_training.py", ranks, rule, memory)
    assert len(output["ways"]) == 17
    for name, found in output["ways"].items():
        assert found["loss"] < 2e-6, name
        assert found["far"] < 1e-5, name
        assert found["across"], f"{name}: ranks hold different parameters"
        # Two numbers have one sum. More are added in the order of the way, and powers of 3 are rounded.
        assert found["same"] or ranks > 2, name
    assert output["transport"].startswith("mpi: ")
    assert output["notes"]["progress"] == "a thread, every 1 ms"
    assert output["notes"]["overlap"] == "merged"
    assert sorted(name for group in output["notes"]["groups"] for name in group) == ["conv1", "fc1", "fc2"]
    assert output["notes"]["startup_s"] >= 0
    assert output["notes"].get("exchange", "") == ("staged through pinned host memory" if memory else "")
    assert bool(output["notes"].get("staging_s")) == bool(memory)
    rows = {row["layer"]: row for row in output["rows"]}
    assert rows["fc1"]["bytes"] == 4 * (64 * 6272 + 64)
    assert all(rows[name]["communication_s"] > 0 for name in ("conv1", "fc1", "fc2"))
    assert rows["pool1"]["communication_s"] == 0.0
