"""`dist_device_sync`: as `dist_sync`; the store of that name sums a worker's devices, and sends the servers the sums."""

from adapters.mxnet.strategies.dist_sync import DistSync

TRAINER = DistSync
