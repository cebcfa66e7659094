"""`kvstore_local`: several devices of one process; the key-value store "local" sums their gradients on the host.

Oldest Python: 3.6.
"""

import mxnet as mx

from adapters.mxnet.base import MXNetTrainer
from adapters.mxnet.exchange import Sums


class KVStoreLocal(MXNetTrainer):
    """Every device updates its own weights with the sums."""

    store = "local"

    def _connect(self) -> None:
        if self.setup.devices > 1:
            store = mx.kv.create(self.store)
            if self._compression is not None:
                store.set_gradient_compression(self._compression)
            self._sums = Sums(store, range(len(self._parameters)), self._parameters)
        self._train_by(self.store, self._compression)  # by name: gluon.Trainer makes its own


TRAINER = KVStoreLocal
