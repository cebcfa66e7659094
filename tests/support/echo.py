"""A predictor whose answers are the samples themselves.

Oldest Python: 3.6.
"""

import time

import numpy as np

from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.predictor import Predictor
from tests.support import trainers

SAMPLES = np.arange(8.0, dtype=np.float32).reshape(8, 1) + 1


class Echo(Predictor):
    """Answers with the samples, after some seconds a batch and some a query."""

    each_s, batch_s, sizes = 0.0, 0.0, ()

    def start(self):
        return Joined(0, 1, "none", {})

    def load(self, graph, tensors):
        pass

    def place(self, inputs):
        self.sizes = {*self.sizes, len(inputs)}
        return inputs

    def run(self, placed):
        time.sleep(self.batch_s + self.each_s * len(placed))
        return placed

    def fetch(self, found):
        return found


def echo(kind=Echo, batch=4, **values):
    made = kind(trainers.setup(batch=batch))
    for name, value in values.items():
        setattr(made, name, value)
    return made
