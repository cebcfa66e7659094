"""What a knob that is left open means."""

import pytest

from suite.worker.contract import chosen
from tests.support.trainers import setup


@pytest.mark.parametrize("knobs", [{}, {"layout": "auto"}])
@pytest.mark.parametrize(("tuning", "expected"), [("default", "NHWC"), ("tuned", "NCHW")])
def test_the_tuning_decides_what_is_left_open(knobs, tuning, expected):
    asked = setup(knobs=knobs, tuning=tuning)
    assert chosen(asked, "layout", default="NHWC", tuned="NCHW") == expected


@pytest.mark.parametrize("value", ["NHWC", False, 0, None])
def test_what_is_asked_for_is_taken(value):
    assert chosen(setup(knobs={"layout": value}, tuning="tuned"), "layout", default=1, tuned=2) is value


def test_without_a_tuned_value_the_default_holds_and_none_is_a_value():
    for tuning in ("default", "tuned"):
        assert chosen(setup(tuning=tuning), "microbatches", default=4) == 4
    assert chosen(setup(tuning="tuned"), "bucket", default=25, tuned=None) is None
