"""`hybrid`: pipelines side by side, each with a batch of its own.

Oldest Python: 3.6.
"""

from typing import Any, Dict, Optional

import numpy as np

from adapters.pytorch.ddp import wrap
from adapters.pytorch.exchange import Exchange, limits_of
from adapters.pytorch.pipeline import PipelineTrainer
from suite.worker.contract import Setup
from workloads.graph import Graph


class HybridTrainer(PipelineTrainer):
    """Each part is averaged over the ranks that hold it: DDP around the part, within the last piece's backward."""

    def __init__(self, setup: Setup) -> None:
        """Every network's ranks are in a row."""
        super().__init__(setup)
        self._wrapped: Any = None
        self._exchange: Optional[Exchange] = None

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """As a pipeline, then DDP where there are several."""
        super().build(graph, weights)
        if self.setup.replicas == 1:
            return
        assert self._group is not None
        column = self._group.column(self.setup.parts)
        # Running statistics stay every network's own, as DDP leaves them that does not send them.
        options = {"bucket_cap_mb": "auto", "gradient_as_bucket_view": self._tuned, "forward_sync_buffers": False}
        self._wrapped = wrap(self._part, self._device, options, column)
        self._exchange = Exchange(list(self._part.parameters()), limits_of(self._wrapped), column)

    def communicate(self) -> None:
        """All-reduce of flat buckets over the ranks with the same part."""
        if self._exchange is not None:
            self._exchange.average()

    def update(self) -> None:
        """Of this part; the gradients are let go."""
        super().update()
        if self._exchange is not None:
            self._exchange.forget()

    def step_alone(self, batch: Any) -> None:
        """The pipeline without DDP; its own values cross all the same."""
        native, self._native, wrapped, self._wrapped = self._native, self._lone, self._wrapped, None
        self.step(batch)
        self._lone, self._native, self._wrapped = self._native, native, wrapped

    _lone: Any = None

    def _module(self) -> Any:
        return self._part if self._wrapped is None else self._wrapped

    def _release(self) -> None:
        self._wrapped = self._exchange = self._lone = None
        super()._release()
