"""`hybrid`: pipelines side by side, each with a batch of its own; every stage is data parallel."""

from typing import Any, Dict, Optional

import numpy as np

from adapters.pytorch.exchange import Averaging, Exchange, limits_of
from adapters.pytorch.strategies.ddp import wrap
from adapters.pytorch.strategies.pipeline import Pipeline
from suite.worker.contract import Batch
from workloads.graph import Graph


class Hybrid(Averaging, Pipeline):
    """Each stage is averaged over the ranks that hold it: DDP around it, within the last microbatch's backward."""

    _ddp: Any = None  # none where there is one pipeline
    _native_alone: Any = None  # the schedule of a step without exchange

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Build a pipeline, then DDP around it where there are several."""
        super().build(graph, weights)
        if self.setup.replicas == 1:
            return
        self._exchanged_bytes += graph.gradient_bytes(self._dtype.itemsize) // self.setup.model_parallel_size
        replicas = self.group.same_stage(self.setup.model_parallel_size)
        # Running statistics stay every network's own, as DDP leaves them that does not send them.
        options = {"bucket_cap_mb": "auto", "gradient_as_bucket_view": self.setup.tuned, "forward_sync_buffers": False}
        self._ddp = wrap(self._stage, self._device, options, replicas)
        self._exchange = Exchange(list(self._stage.parameters()), limits_of(self._ddp), replicas)

    def step_alone(self, batch: Batch) -> None:
        """The pipeline without DDP; its own values cross all the same."""
        native, self._native, ddp, self._ddp = self._native, self._native_alone, self._ddp, None
        self.step(batch)
        self._native_alone, self._native, self._ddp = self._native, native, ddp

    def gradient_bytes(self) -> Optional[int]:
        """Count the gradients of this rank's stage."""
        if self._exchange is None:
            return None
        return sum(tensor.numel() * tensor.element_size() for tensor in self._stage.parameters())

    def _module(self) -> Any:
        return self._stage if self._ddp is None else self._ddp

    def _release(self) -> None:
        self._ddp = self._exchange = self._native_alone = None
        super()._release()
