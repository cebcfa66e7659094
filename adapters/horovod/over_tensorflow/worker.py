"""Horovod's trainers over TensorFlow: strategies/STRATEGY.py holds the one of that name."""

from suite.worker.trainer import by_strategy

trainer = by_strategy("adapters.horovod.over_tensorflow.strategies")
