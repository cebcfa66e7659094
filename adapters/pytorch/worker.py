"""PyTorch's trainers: a class for each strategy, in strategies/STRATEGY.py, where TRAINER names it.

Oldest Python: 3.6.
"""

import importlib

from suite.worker.contract import Setup
from suite.worker.trainer import Trainer


def trainer(setup: Setup) -> Trainer:
    """The trainer of `setup.strategy`; no other strategy's module, nor what that needs of torch, is imported."""
    made: Trainer = importlib.import_module("adapters.pytorch.strategies." + setup.strategy).TRAINER(setup)
    return made
