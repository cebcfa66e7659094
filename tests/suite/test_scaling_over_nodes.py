"""Weak scaling over nodes: one node with as many devices is the baseline."""

import pytest

from suite.analysis.summary import summarise
from tests.reports.made_experiments import paper
from tests.reports.made_run import case_of


def test_nodes_are_measured_against_one_node_with_as_many_devices(tmp_path):
    trained = [row for row in summarise(paper(tmp_path / "run")) if "staged" in row.case.passes]
    rows = [row for row in trained if (row.case.adapter, row.case.workload) == ("pytorch", "alexnet")]
    alexnet = {(row.case.placement.nodes, row.case.placement.ranks_per_node): row for row in rows}
    two, one = alexnet[2, 2], alexnet[1, 2]
    assert two.over_nodes.baseline_id == one.id
    assert two.over_nodes.efficiency.value == pytest.approx(two.rates.value / one.rates.value / 2, rel=0.02)
    assert two.scaling.efficiency.value == pytest.approx(two.rates.value / alexnet[1, 1].rates.value / 4, rel=0.02)
    assert one.over_nodes is None


def test_without_such_a_node_there_is_no_baseline(run):
    case = case_of(ranks=4)
    run.proven(case.on(placement=case.placement.__class__(nodes=2, ranks_per_node=2)))
    run.proven(case_of())
    lonely = summarise(run.folder)[0]
    assert lonely.scaling is not None
    assert lonely.over_nodes is None
