"""Horovod over TensorFlow: a class for each strategy, in strategies/STRATEGY.py, where TRAINER names it.

Oldest Python: 3.6.
"""

import importlib

from suite.worker.contract import Setup
from suite.worker.trainer import Trainer


def trainer(setup: Setup) -> Trainer:
    module = importlib.import_module("adapters.horovod.over_tensorflow.strategies." + setup.strategy)
    made: Trainer = module.TRAINER(setup)
    return made
