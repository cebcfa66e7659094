"""The reference's trainer: it has one strategy, in strategies/single.py.

Oldest Python: 3.6.
"""

from adapters.reference.strategies.single import ReferenceTrainer
from suite.worker.contract import Setup
from suite.worker.trainer import Trainer


def trainer(setup: Setup) -> Trainer:
    return ReferenceTrainer(setup)
