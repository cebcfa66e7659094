"""One device, no exchange: the strategy `single`."""

from adapters.tensorflow.replicas import Replicas

TRAINER = Replicas
