"""`kvstore_device`: several devices of one process; the key-value store "device" sums gradients on the devices."""

from adapters.mxnet.strategies.kvstore_local import KVStoreLocal


class KVStoreDevice(KVStoreLocal):
    """As `kvstore_local`, summed elsewhere."""

    kind = "device"
