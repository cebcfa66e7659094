"""The model against measurements that others have published; the folder of their logs is not part of the project."""

import os
from itertools import combinations
from pathlib import Path

import pytest

from tests.validation.published_traces import points

FOLDER = os.environ.get("STAGEBENCH_PUBLISHED_TRACES", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="STAGEBENCH_PUBLISHED_TRACES names no folder of B-Caffe's logs")


def test_every_published_speed_is_met_within_a_tenth():
    errors = {(point.nodes, point.schedule): point.error for point in points(Path(FOLDER))}
    assert len(errors) == 9
    assert max(map(abs, errors.values())) <= 0.10, errors


@pytest.mark.parametrize(("algorithm", "bound"), [("ring", 0.10), ("halving", 0.11)])
def test_four_and_eight_nodes_follow_from_two(algorithm, bound):
    errors = {(point.nodes, point.schedule): point.error for point in points(Path(FOLDER), 2, algorithm)}
    assert max(map(abs, errors.values())) <= bound, errors


def test_schedules_that_differ_are_ranked_right():
    for a, b in combinations(points(Path(FOLDER)), 2):
        if a.nodes == b.nodes and abs(a.measured / b.measured - 1) > 0.03:
            right = (a.predicted.order > b.predicted.order) == (a.measured > b.measured)
            assert right, (a.nodes, a.schedule, b.schedule)
