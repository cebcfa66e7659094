"""Loads: which queries a predictor gets, in which order, and what is reported of them."""

import weakref

import numpy as np
import pytest

from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.loop import Loop
from stagebench.suite.worker.pass_kinds import BY_NAME, OFFLINE, USUAL_LOADS
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.queries import Loads, tensors_of
from stagebench.workloads.build import Builder
from tests.support import trainers


def network():
    b = Builder("loaded", (1, 4, 4), 3)
    b.head(b.dense("fc", b.flatten("flat", b.conv_bn("conv", "input", 2, 3)), 3))
    return b.graph


class Noting(Predictor):
    """Writes down what happens to each query."""

    def start(self):
        return Joined(0, 1, "none", {})

    def load(self, graph, tensors):
        self.events, self.answers, self.most = [], weakref.WeakValueDictionary(), 0

    def place(self, inputs):
        return inputs

    def run(self, placed):
        self.events.append(("run", len(placed), placed.tobytes()))
        return placed

    def fetch(self, found):
        self.events.append(("fetch", len(found), found.tobytes()))
        answer = self.answers[len(self.events)] = found.copy()
        self.most = max(self.most, len(self.answers))
        return answer


@pytest.fixture
def asked(sampling):
    def run(name):
        predictor = Noting(trainers.setup(batch=5))
        predictor.load(network(), {})
        loop = Loop(predictor, sampling._replace(steps=12), lambda **_: None)
        found = Loads(predictor, network(), loop).run(name)
        assert predictor.most < 4, "answers are kept, which do not fit into memory"
        return found, predictor.events

    return run


@pytest.mark.parametrize("name", USUAL_LOADS)
def test_a_query_has_as_many_samples_as_its_load_says(name, asked):
    found, events = asked(name)
    samples = BY_NAME[name].query or 5
    assert {size for _, size, _ in events} == {samples}
    assert found.samples == samples * len(found.step_s)
    assert len(found.step_s) >= 12
    assert len({data for _, _, data in events}) >= 4, "the same samples again and again may come from a cache"


def test_offline_begins_a_query_before_it_waits_for_the_one_before(asked):
    kinds = "".join(kind[0] for kind, _, _ in asked(OFFLINE)[1])
    assert kinds.startswith("rrfrfrf")
    assert kinds.count("r") == kinds.count("f") + 1


def test_a_single_stream_waits_for_each_answer(asked):
    kinds = "".join(kind[0] for kind, _, _ in asked("single_stream")[1])
    assert kinds == "rf" * (len(kinds) // 2)


def test_a_new_network_has_standard_statistics():
    found = tensors_of(network(), {"fc.bias": np.zeros(3)})
    assert found["conv_bn.running_mean"].tolist() == [0.0, 0.0]
    assert found["conv_bn.running_var"].tolist() == [1.0, 1.0]
