"""What the first screen says, and that the answer to the plan's question comes first."""

from functools import partial

import pytest

from reports import findings
from reports.inputs import inputs_of
from suite.analysis.summary import summarise
from suite.predict.from_run import beside_measured
from tests.reports.made_experiments import inputs
from tests.reports.made_run import MadeRun, case_of
from workloads.networks import resnet50


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("paper", ["s", "l", "m"]),
        ("prediction", ["m", "l", "s"]),
        ("quick", ["l", "s", "m"]),
        ("", ["l", "s", "m"]),
        ("readers", ["l", "s", "m"]),  # nothing answers it
    ],
)
def test_what_the_plan_asks_comes_first(plan, expected):
    found = {findings.LED: ["l"], findings.SCALED: ["s"], findings.MODEL: ["m"]}
    assert findings.ordered(plan, found) == expected


def test_the_speed_over_devices_and_the_error_of_the_model_are_sentences(tmp_path):
    made = MadeRun(tmp_path / "run")
    resnet = partial(case_of, "pytorch", "resnet50", graph_digest=resnet50().digest)
    assert list(findings.speed_ups([])) == []
    assert findings.modelled([]) == []
    for ranks in (1, 2, 4):
        made.proven(resnet(ranks))
    rows = summarise(made.folder)
    (told,) = findings.speed_ups(rows)
    efficiency = next(row.scaling.efficiency.value for row in rows if row.case.placement.ranks == 4)
    assert told.startswith("resnet50 on ")
    assert f", on 4 devices: pytorch/ddp is {4 * efficiency:.2f} times as fast as on one (" in told
    predicted, _ = beside_measured(made.folder, rows)
    (error,) = [answer.error(one) for answer in predicted for one in answer.predictions]
    (told,) = findings.modelled(predicted)
    assert "1 predictions are off by " in told
    assert told.count(f"{abs(error) * 100:.1f} %") == 2


def test_what_holds_a_training_up_is_a_sentence(tmp_path):
    folder = inputs(tmp_path / "run")
    (first, *_) = findings.read(inputs_of([row for row in summarise(folder) if row.measured]))
    assert ": " in first
    assert findings.read(None) == []
