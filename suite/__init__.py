"""stagebench: the cost of distributed training, stage by stage, with the proof that the training is right.

Oldest Python of this file: 3.6, since it travels with the worker half.
"""

__version__ = "0.1.0"
