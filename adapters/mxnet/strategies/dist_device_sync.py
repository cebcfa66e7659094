"""`dist_device_sync`: the store of that name sums on a worker's devices, and sends the servers the sums."""

from adapters.mxnet.strategies.dist_sync import DistSync

TRAINER = DistSync
