"""Data sets: where they are, whether they fit a network, how the ready-made ones are made."""

from stagebench.suite.data.sets import SETS, KnownSet, home, locate, made

__all__ = ["SETS", "KnownSet", "home", "locate", "made"]
