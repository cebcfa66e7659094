"""A trainer that trains nothing: it joins, exchanges as many bytes as gradients have, and dies when told to.

Oldest Python: 3.6.
"""

import os
import signal
import time
from typing import Any

import numpy as np

from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.meeting import Meeting
from stagebench.suite.worker.trainer import Trainer
from stagebench.workloads.graph import Graph


class TinyTrainer(Trainer):
    def start(self) -> Joined:
        setup = self.setup
        self.comm = self.meeting = None
        versions = {name: os.environ.get(name, "") for name in ("TINY_WORDS", "OMP_NUM_THREADS", "MASTER_PORT")}
        if "SLURM_CPUS_ON_NODE" in os.environ:
            versions["cores of the step"] = os.environ["SLURM_CPUS_ON_NODE"]
        versions["code"] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        if setup.strategy == "meets":
            address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
            self.meeting = Meeting(setup.rank, setup.world, address)
            return Joined(setup.rank, setup.world, "tcp: " + self.meeting.host, versions)
        if setup.strategy != "mpi":
            return Joined(setup.rank, setup.world, "none", versions)
        from mpi4py import MPI

        self.MPI, self.comm = MPI, MPI.COMM_WORLD
        return Joined(self.comm.rank, self.comm.size, "mpi: " + MPI.Get_library_version()[:20], versions)

    def build(self, graph: Graph, weights: dict[str, np.ndarray]) -> None:
        self.steps = 0
        self.gradients_ = np.ones(0 if self.setup.knobs.get("quiet") else graph.gradient_bytes() // 4, np.float32)
        self.sums = np.empty_like(self.gradients_)

    def synchronize(self) -> None:
        pass

    def to_device(self, batch: Any) -> Any:
        return batch

    def step(self, batch: Any) -> None:
        self.steps += 1
        time.sleep(self.setup.knobs.get("pace", 0.001))
        if self.steps == 3 and self.setup.rank == self.setup.knobs.get("dies"):
            os.kill(os.getpid(), getattr(signal, self.setup.knobs["signal"]))
        if self.steps == 3 and self.setup.rank == self.setup.knobs.get("raises"):
            raise ValueError("the layer is upside down")
        if self.comm is not None:
            self.comm.Allreduce(self.gradients_, self.sums)
        self.maximum(0.0)

    def loss(self) -> float:
        return 0.5

    def parameter_count(self) -> int:
        return 0

    def macs(self) -> int:
        return 0

    def maximum(self, value: float) -> float:
        if self.meeting is not None:
            return self.meeting.maximum(value)
        return value if self.comm is None else float(self.comm.allreduce(value, op=self.MPI.MAX))

    def forward(self, batch: Any) -> None:
        raise NotImplementedError("only the native pass is run")

    def backward(self) -> None:
        raise NotImplementedError("only the native pass is run")

    def parameters(self) -> Any:
        return {}

    communicate = update = logits = gradients = backward  # type: ignore[assignment]
