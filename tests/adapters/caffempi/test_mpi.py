"""Real MPI ranks: every way trains as one rank does on the joined batch; exchanges; the asynchronous server."""

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


STEPS = 6  # as in mpi_async.py


@pytest.mark.parametrize(("ranks", "rule", "memory"), [(1, "sgd", ""), (3, "sgd", ""), (2, "adam", "staged")])
def test_every_push_is_one_update_of_the_servers_weights(ranks, rule, memory, mpirun):
    output = mpirun("mpi_async.py", ranks, rule, memory)
    assert len(output["equal"]) == 6
    for way, equal in output["equal"].items():
        assert equal, f"{way}: not what the same updates by one rank give"
    # In turns, each but the first of a rank comes after one update of every other rank.
    for rank, stale in enumerate(output["turns"]):
        steps = STEPS // ranks
        assert stale == {
            "steps": steps,
            "max": ranks - 1 if steps > 1 else rank,
            "mean": (rank + (ranks - 1) * (steps - 1)) / steps,
        }
    assert output["updates"] == ranks * (5 * STEPS + 1)
    # A rank that begins when the others have nearly done has less to learn than its dropout makes its losses differ by.
    assert min(min(losses[-10:]) for losses in output["losses"]) < max(losses[0] for losses in output["losses"])
    for notes in output["notes"]:
        stale = notes["staleness"]
        assert stale["steps"] == 5 * STEPS
        assert 0 <= stale["mean"] <= stale["max"] < ranks * 5 * STEPS
        assert bool(notes.get("staging_s")) == bool(memory)
    # Whoever came last has seen all updates of the others; one that was alone for a while, perhaps none.
    most = max(notes["staleness"]["mean"] * 5 * STEPS for notes in output["notes"])
    assert most == pytest.approx((ranks - 1) * 5 * STEPS)
    assert "on rank 0" in output["notes"][0]["server"]
