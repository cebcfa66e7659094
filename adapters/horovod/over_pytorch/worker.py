"""Horovod's trainers over PyTorch: strategies/STRATEGY.py holds the one of that name."""

from suite.worker.trainer import by_strategy

trainer = by_strategy("adapters.horovod.over_pytorch.strategies")
