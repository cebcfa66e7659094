"""Trains a workload the way Caffe-MPI does: a net of layers, Caffe's solver, gradients over MPI.

Oldest Python: 3.6.
"""

import platform
from typing import Any, Dict, Iterator, List

import numpy as np
import torch

from adapters.caffempi.alone import Alone
from adapters.caffempi.arena import exported
from adapters.caffempi.lower import lower
from adapters.caffempi.timing import LayerClock
from suite.worker.contract import Batch, Joined, Setup
from suite.worker.feed import synthetic
from suite.worker.trainer import Trainer
from workloads.graph import Graph

TRIALS = 3  # iterations that tell the merge rule when each layer's gradient is ready


class CaffeMPITrainer(Trainer):
    """One rank; what happens to its gradients is its way's (`adapters.caffempi.alone`)."""

    def __init__(self, setup: Setup) -> None:
        """Resolve what the knobs leave open."""
        super().__init__(setup)
        tuned = setup.tuning == "tuned"
        layout = setup.knobs.get("memory_format", "auto")
        self._layout = ("channels_last" if tuned else "contiguous") if layout == "auto" else layout
        self._dtype = {"float32": torch.float32, "float64": torch.float64}[setup.precision]
        self._ranks: Any = None
        self._way: Any = None  # an Alone, once there is a net
        self._reader: Any = None
        self._database: Any = None

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        """Set threads and, unless alone, join the MPI group."""
        torch.set_num_threads(self.setup.threads)
        torch.manual_seed(self.setup.seed * 1000003 + self.setup.rank)
        versions = {"torch": torch.__version__, "python": platform.python_version(), "numpy": np.__version__}
        if self.setup.strategy == "single":
            return Joined(self.setup.rank, self.setup.world, "none", versions)
        import mpi4py  # here: a single rank starts faster without MPI

        from adapters.caffempi.ranks import Ranks

        node_ranks = self.setup.knobs.get("node_ranks", "auto")
        self._ranks = Ranks(self.setup.strategy, 0 if node_ranks == "auto" else node_ranks)
        versions["mpi4py"] = mpi4py.__version__
        versions["mpi"] = self._ranks.library()
        return Joined(self._ranks.rank, self._ranks.size, "mpi: " + self._ranks.library(), versions)

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """The net, and how it is trained."""
        if self._way is not None:
            self._way.close()
        self._net = lower(graph, self._layout == "channels_last", self.setup.world, self._dtype)
        self._clock, self._graph = LayerClock(self._net), graph
        self._net.arena.load(weights)  # now: a trial on zeros would time other arithmetic
        if self._ranks is None:
            self._way = Alone(self._net, self.setup.optimiser)
            return
        from adapters.caffempi.together import together

        self._way = together(self.setup, self._ranks, self._net, self._trial)

    def _trial(self) -> List[float]:
        """When each layer's gradient is ready, measured; the net is as before, but for its gradients."""
        clock = LayerClock(self._net)
        self._run_aside(self.setup.batch, TRIALS, clock)
        return clock.ready_s()

    def _run_aside(self, samples: int, times: int, clock: LayerClock) -> None:
        """Run forward and backward on generated data, and restore what they moved."""
        kept = {name: buffer.clone() for name, buffer in self._net.buffers().items()}
        batch = self.to_device(synthetic(self._graph, samples, self.setup.seed))
        for _ in range(times):
            self._net.forward(batch.images, batch.labels)
            clock.begin()
            self._net.backward(clock.backward)
        for name, buffer in self._net.buffers().items():
            buffer.copy_(kept[name])

    def synchronize(self) -> None:
        """Operators on a CPU have finished when they return."""

    def close(self) -> None:
        """Stop reading and leave MPI."""
        if self._reader is not None:
            self._reader.close()
        if self._way is not None:
            self._way.close()
        if self._ranks is not None:
            self._ranks.leave()

    # --- data ---------------------------------------------------------------

    def pack(self, form: str, samples: Iterator[Any], folder: str) -> None:
        """An LMDB environment."""
        from adapters.caffempi.packing import pack  # here and below: most cases need no database

        pack(samples, folder)

    def open_records(self, records: Any) -> Any:
        """Samples by number: the reading threads take them from the mapped environments."""
        from adapters.caffempi.database import Database

        self._database = Database(records)
        return self._database

    def open_input(self, source: Any) -> None:
        """Caffe-MPI's parallel reading threads, over files or a database; what lies in memory needs none."""
        if self._database is None or source.arrays is not None:
            super().open_input(source)
            return
        from adapters.caffempi.reading import DatabaseReader

        self._reader = DatabaseReader(source, self._database, self.setup)

    def to_device(self, batch: Any) -> Batch:
        """NumPy to tensors, in the net's memory format and precision."""
        images = torch.from_numpy(batch.images).to(self._dtype)
        if self._layout == "channels_last":
            images = images.contiguous(memory_format=torch.channels_last)
        return Batch(images, torch.from_numpy(batch.labels))

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Any) -> None:
        """Layer by layer, timed."""
        self._clock.begin()
        self._net.forward(batch.images, batch.labels, self._clock.forward)

    def backward(self) -> None:
        """Layer by layer, timed, without any exchange."""
        self._clock.begin()
        self._net.backward(self._clock.backward)
        self._way.begin()

    def communicate(self) -> None:
        """All of the plan's messages, timed."""
        self._way.communicate(self._clock.communication)

    def update(self) -> None:
        """The solver's rule over all parameters."""
        self._way.update()

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Any) -> None:
        """Wait-free back-propagation: groups leave as they are complete."""
        self._net.forward(batch.images, batch.labels)
        self._way.step()

    def step_alone(self, batch: Any) -> None:
        """The same without MPI."""
        self._net.forward(batch.images, batch.labels)
        self._way.step_alone()

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """This rank's loss."""
        return self._net.loss()

    def logits(self) -> np.ndarray:
        """The last head's."""
        return exported(self._net.losses[-1][1].logits)

    def gradients(self) -> Dict[str, np.ndarray]:
        """Averaged after `communicate`; before it, this rank's share of the average."""
        self._way.settle()
        return self._net.arena.export(self._net.arena.gradients)

    def parameters(self) -> Dict[str, np.ndarray]:
        """Parameters and running statistics."""
        found = self._net.arena.export(self._net.arena.parameters)
        found.update((name, exported(buffer)) for name, buffer in self._net.buffers().items())
        return found

    def parameter_count(self) -> int:
        """Of the blobs in the one array that the solver updates; gaps that align them are nobody's."""
        return self._net.arena.size

    def macs(self) -> int:
        """Counted on the layers after a forward pass."""
        if not self._net.losses or self._net.losses[0][1].logits is None:
            self._run_aside(2, 1, LayerClock(self._net))
        return self._net.macs()

    # --- what the measuring loop needs ----------------------------------------

    def maximum(self, value: float) -> float:
        """Over all ranks."""
        return value if self._ranks is None else self._ranks.maximum(value)

    def layer_times(self) -> List[Dict[str, Any]]:
        """Caffe's table; the losses have a row of their own."""
        return self._clock.rows()

    def forget_layer_times(self) -> None:
        """The staged pass's warm-up is over."""
        self._clock.forget()

    def begin_training(self) -> None:
        """Count what a training counts."""
        self._way.count()

    def notes(self) -> Dict[str, Any]:
        """What was chosen, and from which measurements."""
        found: Dict[str, Any] = {"memory_format": self._layout}
        found["reader"] = self._reader.words if self._reader else "none"
        if self._way is not None:
            found.update(self._way.notes())
        return found
