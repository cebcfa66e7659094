"""One device, no exchange: the strategy `single`.

Oldest Python: 3.6.
"""

from adapters.tensorflow.replicas import Replicas


class Single(Replicas):
    """One replica."""


TRAINER = Single
