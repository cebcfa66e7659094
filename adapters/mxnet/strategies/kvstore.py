"""`kvstore_local` and `kvstore_device`: several devices of one process, and a key-value store that sums gradients."""

import mxnet as mx

from adapters.mxnet.base import MXNetTrainer


class KVStoreLocal(MXNetTrainer):
    """The store "local" sums on the host; every device updates its own weights with the sums."""

    kind = "local"

    def _connect(self) -> None:
        if self.setup.devices > 1:
            store = mx.kv.create(self.kind)
            if self._compression is not None:
                store.set_gradient_compression(self._compression)
            self._exchange_by(store, range(len(self._parameters)))
        self._train_by(self.kind, self._compression)  # by name: gluon.Trainer makes its own


class KVStoreDevice(KVStoreLocal):
    """The store "device" sums on the devices."""

    kind = "device"
