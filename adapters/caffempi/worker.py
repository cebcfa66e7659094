"""Caffe-MPI's trainers: a class for each strategy, in strategies/STRATEGY.py, where TRAINER names it.

Oldest Python: 3.6.
"""

import importlib

from suite.worker.contract import Setup
from suite.worker.trainer import Trainer


def trainer(setup: Setup) -> Trainer:
    """The trainer of `setup.strategy`; no other strategy's module is imported, so one rank alone starts without MPI."""
    made: Trainer = importlib.import_module("adapters.caffempi.strategies." + setup.strategy).TRAINER(setup)
    return made
