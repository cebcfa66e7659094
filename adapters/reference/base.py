"""The trainer of the reference: the whole contract in NumPy float64, in one process.

NumPy 1.19 or newer. BLAS takes its thread count from the
environment, which must be set before NumPy is loaded; the controller does.
"""

import math
from typing import List

import numpy as np

from stagebench.adapters.reference.lower import Network, Run
from stagebench.suite.worker.contract import Adam, Batch, Joined, LayerTimes, Setup, Unsupported, decay_of
from stagebench.suite.worker.layers import LayerClock, repeated
from stagebench.suite.worker.trainer import Arrays, Trainer
from stagebench.workloads.graph import Graph


class ReferenceTrainer(Trainer):
    """Trains with the batch cut into `shards`, contiguous and equal, averaged as ranks would.

    Each shard is normalised by its own statistics; running statistics are shard 0's, as
    a data-parallel run keeps rank 0's, or those of the first `observed` shards in a row.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._shards = int(setup.knobs["shards"])
        self._observed = int(setup.knobs["observed"])
        self._runs: List[Run] = []
        self._network: Network
        self._velocity: Arrays
        self._squares: Arrays = {}
        self._updates = 0
        self._rule = setup.optimiser  # with the rate of the next update

    def start(self) -> Joined:
        return joined(self.setup)

    def build(self, graph: Graph, weights: Arrays) -> None:
        """Convert the weights to float64; an earlier network is dropped first, AlexNet's fills a gigabyte."""
        self._runs = []
        if hasattr(self, "_network"):
            del self._network, self._velocity
        self._network = Network(graph, weights, self.setup.seed, int(self.setup.knobs["bits"]))
        self._updates = 0
        self._squares = {}
        self._rule = self.setup.optimiser
        self._velocity = {name: np.zeros_like(w) for name, w in self._network.named("weights").items()}

    def to_device(self, batch: Batch) -> Batch:
        return Batch(wide(np.asarray(batch.inputs)), np.asarray(batch.labels))

    def forward(self, batch: Batch) -> None:
        """Compute each shard; ValueError if the batch does not divide into shards."""
        count, rest = divmod(len(batch.labels), self._shards)
        if rest or not count:
            raise ValueError(f"a batch of {len(batch.labels)} does not divide into shards = {self._shards}")
        self._runs = []
        for shard in range(self._shards):
            own = slice(shard * count, (shard + 1) * count)
            run = self._network.forward(batch.inputs[own], batch.labels[own], observe=shard < self._observed)
            self._runs.append(run)

    def backward(self) -> None:
        """The mean over the shards of their gradients; what a run kept is dropped as soon as it is used."""
        self._network.forget_gradients()
        for index, run in enumerate(self._runs):
            self._network.backward(run, 1.0 / self._shards)
            self._runs[index] = run._replace(kept=[], seeds={})

    def update(self) -> None:
        """Update as `stagebench.suite.worker.contract` defines SGD and Adam."""
        rule = self._rule
        weights = self._network.named("weights")
        gradients = self._network.named("gradients")
        self._updates += 1
        clipped = 1.0
        if rule.clip:
            norm = math.sqrt(sum(float(np.sum(each * each)) for each in gradients.values()))
            clipped = rule.clip / max(rule.clip, norm)
        for name, velocity in self._velocity.items():
            decoupled = isinstance(rule, Adam) and rule.decoupled
            decay = decay_of(rule, velocity.shape)
            gradient = clipped * gradients.get(name, 0.0) + (0.0 if decoupled else decay * weights[name])
            if decoupled:
                weights[name] *= 1.0 - rule.lr * decay
            if isinstance(rule, Adam):
                velocity += (1.0 - rule.beta1) * (gradient - velocity)
                square = self._squares.setdefault(name, np.zeros_like(velocity))
                square += (1.0 - rule.beta2) * (gradient * gradient - square)
                weights[name] -= rule.rate(self._updates) * velocity / (np.sqrt(square) + rule.epsilon)
            else:
                velocity *= rule.momentum
                velocity += gradient
                weights[name] -= rule.lr * velocity
        self._network.forget_gradients()

    def step(self, batch: Batch) -> None:
        """The stages in a row: an oracle has no faster way."""
        self.forward(batch)
        self.backward()
        self.update()

    def set_learning_rate(self, rate: float) -> None:
        self._rule = self._rule._replace(lr=rate)

    def loss(self) -> float:
        return sum(run.loss for run in self._runs) / len(self._runs)

    def logits(self) -> np.ndarray:
        return np.concatenate([run.logits for run in self._runs]).astype(np.float32)

    def predict(self, batch: Batch) -> np.ndarray:
        return self._network.predict(batch.inputs).astype(np.float32)

    def gradients(self) -> Arrays:
        return {name: tensor.copy() for name, tensor in self._network.named("gradients").items()}

    def parameters(self) -> Arrays:
        """float64 copies, running statistics too."""
        both = dict(self._network.named("weights"), **self._network.named("statistics"))
        return {name: tensor.copy() for name, tensor in both.items()}

    def parameter_count(self) -> int:
        return sum(tensor.size for tensor in self._network.named("weights").values())

    def macs(self) -> int:
        return self._network.macs()

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        """Laps of the batch in one piece, whatever the shards."""
        clock = LayerClock(self, self._network.graph)
        network = self._network

        def once() -> None:
            clock.begin()
            run = network.forward(batch.inputs, batch.labels, observe=False, lap=clock.forward)
            clock.begin()
            network.backward(run, 1.0, clock.backward)
            network.forget_gradients()

        return repeated(clock, once)


def joined(setup: Setup) -> Joined:
    """Return the state of the only process; Unsupported for more ranks, another device or another precision."""
    needs = (("ranks", setup.world, 1), ("device", setup.device, "cpu"), ("precision", setup.precision, "float64"))
    for key, found, wanted in needs:
        if found != wanted:
            raise Unsupported(f"the reference runs with {key} {wanted}, not {found}")
    return Joined(0, 1, "none", {"numpy": np.__version__, "blas": blas()})


def wide(inputs: np.ndarray) -> np.ndarray:
    """Convert images to float64; whole numbers stay: they are tokens."""
    return inputs if np.issubdtype(inputs.dtype, np.integer) else inputs.astype(np.float64)


def blas() -> str:
    """The BLAS library NumPy was built with; its interface to tell changed with NumPy 1.26."""
    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[call-overload,index]
        return f"{found.get('name')} {found.get('version')}"
    except TypeError:
        libraries = getattr(np.__config__, "blas_opt_info", {}).get("libraries", ["unknown"])
        return ", ".join(sorted(set(libraries)))
