"""stagebench: the cost of distributed training, stage by stage, with the proof that the training is right.

Oldest Python of this file: 3.6, since it travels with the worker half.
"""

if __name__ == "suite":  # in a clone, for a plugin of an older contract
    raise ModuleNotFoundError("suite is stagebench.suite", name="suite")

__version__ = "0.1.0"
