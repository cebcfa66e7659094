"""One device, no exchange: the strategy `single`."""

from adapters.tensorflow.replicas import Replicas


class Single(Replicas):
    """One replica."""


TRAINER = Single
