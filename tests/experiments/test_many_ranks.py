"""As many ranks as a cluster has, on the cores that are here: records are merged and the page can be read."""

import re

import pytest

from stagebench.suite.analysis.summary import summarise
from stagebench.suite.analysis.wording import number

RANKS, STEPS = 64, 3
NAME = f"{RANKS} ranks"  # in the heading of each row of it
PLAN = f"""
name = "many"

[sampling]
quick = true
steps = {STEPS}
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
    assert [rank.rank for rank in record.ranks] == list(range(RANKS))
    the_pages_can_be_read(done.pages, many, record)


def the_pages_can_be_read(pages, many, record):
    """However many ranks: a row in a table, the slowest rank's steps and time, nothing rank by rank."""
    tables = [cells(table) for table in re.findall(r"<tbody>(.*?)</tbody>", "".join(pages.values()), re.DOTALL)]
    found = [[row for row in table if NAME in row[0]] for table in tables]
    assert {len(rows) for rows in found} <= {0, 1}
    assert sum(map(len, found)) >= 5, "speeds, stages, steps, proofs and outcomes"
    assert max(map(len, tables)) < RANKS // 2, "no table has a row a rank"
    speed = RANKS * STEPS / max(rank.passes["native"].wall_s for rank in record.ranks)
    assert many.rates.value == pytest.approx(speed)
    (steps,) = cells(pages["speed.html"].partition('<section id="steps"')[2].partition("</section>")[0], NAME)
    assert steps[1] == str(STEPS)
    assert number(speed) in [row[1].partition("<")[0] for rows in found for row in rows]


def cells(table, name=""):
    """The words of every row of a table, cell by cell; of those rows only whose heading has this name."""
    rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    ]
    return [row for row in rows if row and name in row[0]]
