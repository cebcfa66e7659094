"""The asynchronous parameter server on real ranks."""

import pytest

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
