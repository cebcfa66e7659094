import pytest

from stagebench.adapters.tensorflow.inference import TensorFlowPredictor
from tests.adapters.alike import assert_queries_are_apart


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_queries_in_flight_have_their_own_answers(tuning):
    assert_queries_are_apart(TensorFlowPredictor, tuning)
