"""As many ranks as a cluster has, on the cores that are here: records are merged and the page can be read."""

from suite.analysis.summary import summarise

RANKS = 64
PLAN = f"""
name = "many"

[sampling]
quick = true
steps = 3
seconds = 0.0
processes = 1
warmup_steps = 1

[[cases]]
adapter = "caffempi"
strategy = "data_parallel"
workload = "mnist_small"
batch = 1
ranks = [1, {RANKS}]
"""


def test_64_ranks_complete_and_are_one_row(experiment, tmp_path):
    plan = tmp_path / "many.toml"
    plan.write_text(PLAN)
    done = experiment(str(plan))
    assert done.outcomes == {"ok": 2}
    (many,) = [row for row in summarise(done.folder) if row.case.placement.ranks == RANKS]
    record = done.folder.record(many.id, 0)
    assert [rank["rank"] for rank in record["ranks"]] == list(range(RANKS))
    assert len(record["ranks"]) == RANKS
    assert f"{RANKS} ranks" in done.page
    assert len(done.page) < 20_000_000  # a browser opens it
