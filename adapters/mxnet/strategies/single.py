"""`single`: one process, one device, no exchange."""

from adapters.mxnet.base import MXNetTrainer


class Single(MXNetTrainer):
    """The common trainer as it is."""

    def _connect(self) -> None:
        self._train_by(None)


TRAINER = Single
