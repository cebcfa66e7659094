"""stagebench: what distributed training costs, stage by stage, with the proof beside it.

Oldest Python of this file: 3.6, since it travels with the worker half.
"""

__version__ = "0.1.0"
