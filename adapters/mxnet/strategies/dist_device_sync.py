"""`dist_device_sync`: as `dist_sync`, and a worker sums the gradients of its several devices on them."""

from adapters.mxnet.strategies.dist_sync import DistSync


class DistDeviceSync(DistSync):
    """The store of that name sums on the devices, and sends the servers the sums."""


TRAINER = DistDeviceSync
