"""MXNet's trainers: strategies/STRATEGY.py holds the one of that name.

Oldest Python: 3.6.
"""

from importlib import import_module

from suite.worker.contract import Setup
from suite.worker.trainer import Trainer


def trainer(setup: Setup) -> Trainer:
    made: Trainer = import_module("adapters.mxnet.strategies." + setup.strategy).TRAINER(setup)
    return made
