"""Caffe-MPI's trainers: strategies/STRATEGY.py holds the one of that name."""

from suite.worker.trainer import by_strategy

trainer = by_strategy("adapters.caffempi.strategies")
