"""Horovod over PyTorch: a class for each strategy, in strategies/STRATEGY.py, where TRAINER names it.

Oldest Python: 3.6.
"""

import importlib

from suite.worker.contract import Setup
from suite.worker.trainer import Trainer


def trainer(setup: Setup) -> Trainer:
    made: Trainer = importlib.import_module("adapters.horovod.over_pytorch.strategies." + setup.strategy).TRAINER(setup)
    return made
