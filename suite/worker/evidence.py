"""The proof's worker half: it produces results and compares them with the oracle's.

The oracle's results are a folder: `meta.json` and one .npy file per tensor, stored in float32 (rounding 3e-8, far below
every tolerance): `gradient.<name>` after the first exchange; `movement.<name>`, the change of a parameter by UPDATES
updates, each by a batch of its own; `running.<name>`, a running statistic after them; `statistics.<name>`, a running
statistic after the first forward, which no gradient has touched; `logits` of that forward; `predicted`, the first
batch's logits in inference mode after the last update. Movements are stored, not parameters, because a parameter's own
rounding would drown the effect of a small learning rate.
"""

import math
import os
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from stagebench.suite.worker.contract import Adam, Call, Optimiser, Setup, decay_of
from stagebench.suite.worker.feed import share, synthetic
from stagebench.suite.worker.messages import Proof, ProofLosses
from stagebench.suite.worker.trainer import Arrays, Trainer
from stagebench.suite.worker.training import untold
from stagebench.suite.worker.typed_json import load as load_json
from stagebench.suite.worker.typed_json import store
from stagebench.workloads import weights
from stagebench.workloads.graph import Graph

UPDATES = 3
RATES = (0.5, 1.0, 0.25)  # factors of the rate at the updates, if the case changes its rate
HALF_ULP = 2.0**-24  # of float32, relative: in mixed precision too the parameters are float32
PIECE = 1 << 18  # numbers: small enough for a processor's cache
SEED = 11  # of the first update's batch; the next one's is one more
FAR = 0.01  # an error above which a factor is looked for, and the largest part that such a factor may leave
MOVED = 1e-3  # of the norm of Adam's movement: the bound of a movement in float32
FURTHER = 2.01  # times the sum of the rates: how far two Adams may be apart that step by rounding
NOISE = 1e-5  # of the root mean square of a tensor's gradient: numbers below it are rounding, in float32 and less
NOTHING = 1e-12  # of a squared norm: what rounding to float32 may leave of a part that is truly zero
META = "meta.json"


class Meta(NamedTuple):
    """The description of the oracle's results, which is stored in META."""

    losses: List[Optional[float]]  # of every update
    samples: int
    weights: str  # a digest
    graph: str  # a digest


def batches(trainer: Trainer, graph: Graph, samples: int) -> Iterator[Any]:
    """Yield the rank's batch of each update on the device, every one with other samples.

    `samples` is the batch of the rank's network. A step that keeps the batch it saw first trains wrongly.
    """
    setup = trainer.setup
    for update in range(UPDATES):
        whole = synthetic(graph, samples * setup.replicas, SEED + update)
        yield trainer.to_device(share(whole, setup.replica, samples))


def staged_iterations(
    trainer: Trainer, graph: Graph, samples: int, first: Callable[[str, Call], None]
) -> List[Optional[float]]:
    """Run UPDATES staged iterations; return their losses.

    `first` is called in the first of them, with the kind of a result and the method of the trainer that returns it.
    """
    losses: List[Optional[float]] = []
    for update, batch in enumerate(batches(trainer, graph, samples)):
        change_rate(trainer, update)
        trainer.forward(batch)
        losses.append(trainer.loss())
        if update == 0:
            first("logits", trainer.logits)
        trainer.backward()
        trainer.communicate()
        if update == 0:
            first("gradient", trainer.gradients)
        trainer.update()
        if update == 0:
            first("statistics", trainer.parameters)
    return losses


def write_oracle(trainer: Trainer, graph: Graph, samples: int, folder: str) -> None:
    """Train UPDATES staged iterations on the whole batch and store the results."""
    graph = graph.without_dropout()
    initial = weights.for_proof(graph)
    trainer.build(graph, initial)

    def first(kind: str, result: Call) -> None:
        if kind == "logits":
            save(folder, kind, result())
        else:
            found = result()
            save_all(folder, kind, {name: found[name] for name in found if kind == "gradient" or name not in initial})

    losses = staged_iterations(trainer, graph, samples, first)
    final = trainer.parameters()
    save_all(folder, "movement", {name: final[name] - initial[name] for name in initial})
    save_all(folder, "running", {name: final[name] for name in final if name not in initial})
    save(folder, "predicted", trainer.predict(next(batches(trainer, graph, samples))))
    store(Meta(losses, samples, weights.digest(initial), graph.digest), f"{folder}/{META}")


def prove(trainer: Trainer, graph: Graph, samples: int, folder: str) -> Proof:
    """Run staged and native iterations from the same start and compare both with the oracle.

    `samples` is the batch of this rank's network; the oracle's batch is the networks' batches joined. The judgement is
    the controller's.
    """
    changing = untold(trainer, graph)
    graph = graph.without_dropout()
    setup = trainer.setup
    initial = weights.for_proof(graph)
    meta = meta_of(folder, samples * setup.replicas, weights.digest(initial), graph.digest)
    oracle = Oracle(folder, setup, graph, samples, initial)
    errors: Dict[str, Dict[str, float]] = {}

    def first(kind: str, result: Call) -> None:
        found = result()  # on all ranks: the call may be collective
        if kind == "logits":
            errors[kind] = {kind: oracle.logits_error(found)}
        elif kind == "gradient":
            errors[kind] = oracle.errors(kind, kind, found)
        else:
            errors[kind] = oracle.statistics_errors(kind, found)
            errors["first staged movement"] = oracle.first_movement_errors("staged", found)

    trainer.build(graph, initial)
    errors["built parameter"] = oracle.built_errors("built", trainer.parameters())
    staged = staged_iterations(trainer, graph, samples, first)
    errors.update(oracle.parameter_errors("staged", trainer.parameters()))

    trainer.build(graph, initial)
    errors["rebuilt parameter"] = oracle.built_errors("rebuilt", trainer.parameters())
    native: List[Optional[float]] = []
    for update, batch in enumerate(batches(trainer, graph, samples)):
        change_rate(trainer, update)
        trainer.step(batch)
        native.append(trainer.loss())
        if update == 0:
            found = trainer.parameters()
            errors["first native statistics"] = oracle.statistics_errors("first native statistics", found)
            errors["first native movement"] = oracle.first_movement_errors("native", found)
    errors.update(oracle.parameter_errors("native", trainer.parameters()))
    if not changing:
        predicted = trainer.predict(next(batches(trainer, graph, samples)))  # on all ranks: the call may be collective
        if setup.replica == 0:
            errors["predict"] = {"logits": oracle.predicted_error(predicted, setup.devices)}
    return Proof(
        losses=ProofLosses(staged, native, meta.losses),
        errors=errors,
        parameter_count=trainer.parameter_count(),
        macs=trainer.macs(),
        graph_digest=graph.digest,
        weights_digest=meta.weights,
        wrong=oracle.wrong,
        factors=oracle.factors,
    )


def change_rate(trainer: Trainer, update: int) -> None:
    if trainer.setup.changing_rate:
        trainer.set_learning_rate(trainer.setup.optimiser.lr * RATES[update])


def meta_of(folder: str, *wanted: object) -> Meta:
    """Return an oracle's description; ValueError if it was made for other samples, weights or another graph."""
    meta: Meta = load_json(Meta, f"{folder}/{META}")
    for key, there, value in zip(Meta._fields[1:], meta[1:], wanted):
        if there != value:
            raise ValueError(f"the oracle in {folder} was made for {key} {there!r}, this is {value!r}")
    return meta


class Oracle:
    """The stored float64 results, and distances from them."""

    def __init__(self, folder: str, setup: Setup, graph: Graph, samples: int, initial: Arrays) -> None:
        """Use the results in `folder`, for this rank's share; `initial` are the weights both sides started from."""
        exact = setup.precision == "float64"
        # The error, relative to a parameter's size, that storing the parameter after every update may cause: so much of
        # a movement's error is excused.
        self._rounding = 0.0 if exact else UPDATES * HALF_ULP
        self._rule = setup.optimiser
        self._rates = [setup.optimiser.lr * rate for rate in (RATES if setup.changing_rate else (1.0,) * UPDATES)]
        # By the length of Adam's steps a parameter that starts at zero, or near it, is its movement: so much of the
        # movement's norm is excused in a parameter, and judged as movement.
        self._noisy = isinstance(self._rule, Adam) and not exact
        self._moved = MOVED if self._noisy else 0.0
        self._parts = {parameter.name: parameter.parts for parameter in graph.parameters}
        self._buffers = graph.buffers
        self._folder = folder
        self._replica = setup.replica
        self._samples = samples
        self._initial = initial
        # The first update's factor of the gradients, by their global norm.
        self._clipped = 1.0
        if self._rule.clip:
            gradients = (load(folder, f"gradient.{name}") for name in self.names("gradient"))
            whole = math.sqrt(sum(norms(each, each)[1] for each in gradients))
            self._clipped = self._rule.clip / max(self._rule.clip, whole)
        self.wrong: Dict[str, str] = {}  # "gradient of fc.weight": its problem, if it has no distance
        self.factors: Dict[str, float] = {}  # "gradient of fc.weight": what the right one was multiplied by

    def logits_error(self, logits: np.ndarray) -> float:
        """Return the distance of this network's logits from its rows of the oracle's."""
        begin = self._replica * self._samples
        theirs = load(self._folder, "logits")[begin : begin + self._samples]
        return self.compared("the output of forward", "", logits, theirs)[0]

    def predicted_error(self, logits: np.ndarray, devices: int) -> float:
        """Return the distance of the first device's share of the logits in inference mode.

        Each device has running statistics of its own.
        """
        theirs = load(self._folder, "predicted")[: self._samples]
        if logits.shape == theirs.shape:
            theirs, logits = (each[: self._samples // devices] for each in (theirs, logits))
        return self.compared("the output of predict", "", logits, theirs)[0]

    def answer_error(self, asked: str, logits: np.ndarray, count: int) -> float:
        """Return the distance of a predictor's answers to the first `count` samples; `asked` describes the query."""
        theirs = load(self._folder, "predicted")[:count]
        return self.compared(f"the output of predict, {asked}", "", logits, theirs)[0]

    def trained(self) -> Arrays:
        """Return the parameters and running statistics after the last update, in float64."""
        found = {
            name: start.astype(np.float64) + load(self._folder, f"movement.{name}")
            for name, start in self._initial.items()
        }
        return {**found, **{name: load(self._folder, f"running.{name}") for name in self.names("running")}}

    def names(self, kind: str) -> List[str]:
        """Return the names of the stored tensors of one kind."""
        files = sorted(os.listdir(self._folder))
        return [file[len(kind) + 1 : -len(".npy")] for file in files if file.startswith(f"{kind}.")]

    def errors(self, kind: str, called: str, tensors: Arrays) -> Dict[str, float]:
        """Return the distance by tensor from the files of one kind; a tensor that is missing is infinitely far."""
        theirs = {name: load(self._folder, f"{kind}.{name}") for name in self.names(kind)}
        return {
            name: self.compared(f"{called} of {name}", name, tensors.get(name), right)[0]
            for name, right in theirs.items()
        }

    def statistics_errors(self, called: str, tensors: Arrays) -> Dict[str, float]:
        """Return the distances of the running statistics after the first forward.

        Other networks see other samples: their statistics differ from the first one's, which are stored.
        """
        return self.errors("statistics", called, tensors) if self._replica == 0 else {}

    def built_errors(self, called: str, tensors: Arrays) -> Dict[str, float]:
        """Return the distance of each parameter from what `build` was given, and of each running statistic."""
        begin = {name: np.full(shape, float(name.endswith("var"))) for name, shape in self._buffers}
        return {
            name: self.compared(f"{called} parameter of {name}", name, tensors.get(name), right)[0]
            for name, right in {**self._initial, **begin}.items()
        }

    def parameter_errors(self, iterations: str, tensors: Arrays) -> Dict[str, Dict[str, float]]:
        """Return the distances of the parameters and of their movements, after "staged" or "native" iterations.

        Every network has its own running statistics, and the oracle stores the first one's.
        """
        parameters = {}
        moved = {}
        for name, start in self._initial.items():
            movement = load(self._folder, f"movement.{name}")
            what = f"{iterations} movement of {name}"
            ours = self._without_noise(name, tensors.get(name), start, movement, sum(self._rates))
            whole, moved[name] = self.compared(what, name, ours, movement, start)
            if what in self.wrong:
                self.wrong[f"{iterations} parameter of {name}"] = self.wrong[what]
            if start.any():  # a parameter that starts at zero is its movement
                parameters[name] = whole
        if self._replica == 0:
            parameters.update(self.errors("running", f"{iterations} parameter", tensors))
        return {f"{iterations} parameter": parameters, f"{iterations} movement": moved}

    def first_movement_errors(self, iterations: str, tensors: Arrays) -> Dict[str, float]:
        """Return the distances of the parameters' movements after one update from what the gradients move them by.

        All parameters are off after an update by a wrong gradient and another; after one, those of the gradient are.
        """
        moved = {}
        rule = self._rule._replace(lr=self._rates[0])
        for name, start in self._initial.items():
            movement = first_movement(rule, self._clipped * load(self._folder, f"gradient.{name}"), start)
            what = f"first {iterations} movement of {name}"
            ours = self._without_noise(name, tensors.get(name), start, movement, self._rates[0])
            _, moved[name] = self.compared(what, name, ours, movement, start)
        return moved

    def _without_noise(self, name: str, ours: Any, start: np.ndarray, movement: np.ndarray, way: float) -> Any:
        """Return a parameter after Adam's updates, the oracle's where the gradient is nothing but rounding.

        There, but for float64, Adam makes steps of the rounding, each about as long as the rate, together `way`. Two
        Adams may go in opposite directions. A number that is further off stays. So a key's bias, whose gradient is 0,
        is held to no direction.
        """
        if not isinstance(self._rule, Adam) or not self._noisy or ours is None or ours.shape != start.shape:
            return ours
        gradient, theirs = self._clipped * load(self._folder, f"gradient.{name}"), start + movement
        if not self._rule.decoupled:
            gradient = gradient + decay_of(self._rule, start.shape) * start
        noise = np.abs(gradient) < NOISE * math.sqrt(float(np.mean(np.square(gradient, dtype=np.float64))))
        return np.where(noise & (np.abs(ours - theirs) <= FURTHER * way), theirs, ours) if noise.any() else ours

    def compared(
        self, what: str, name: str, ours: Optional[np.ndarray], theirs: np.ndarray, start: Optional[np.ndarray] = None
    ) -> Tuple[float, float]:
        """Return the distance of a tensor from the oracle's; and of its movement, less what storing it excuses.

        `name` is a parameter's.

        With a `start`, `theirs` is a movement from there. A tensor that has no distance is noted, and so is the factor
        of one that is a multiple.
        """
        far = float("inf")
        if ours is None or ours.shape != theirs.shape:
            self.wrong[what] = "is missing" if ours is None else f"has shape {ours.shape}, not {theirs.shape}"
            return far, far
        if not np.isfinite(ours).all():
            self.wrong[what] = "holds numbers that are not finite"
        count = self._parts.get(name, 1)
        tensors = [ours, theirs] if start is None else [ours, theirs, start]
        sums = [norms(*part) for part in zip(*(np.split(tensor, count) for tensor in tensors))]
        whole = [sum(column) for column in zip(*sums)]
        errors, moves = zip(*(self._relative(part, whole, start is not None) for part in sums))
        off, _, size, length, product = whole
        # The square of what is no multiple; nothing at all is 0 times the right one.
        if size and FAR < relative(off, size) < far and length - product * product / size <= FAR * FAR * length:
            self.factors[what] = product / size
        return float(np.max(errors)), float(np.max(moves))  # NaN if one is

    def _relative(self, part: List[float], whole: List[float], moved: bool) -> Tuple[float, float]:
        """Return the distances of a part, by its `norms`, or by the whole tensor's where the part's is nothing."""
        off, *lengths = part[:3]
        total, size = (own if own > NOTHING * all_of_it else all_of_it for own, all_of_it in zip(lengths, whole[1:3]))
        if not moved:
            return relative(off, total), relative(off, size)
        rounding, movement = self._rounding * math.sqrt(part[1]), self._moved * math.sqrt(part[2])
        return relative(less(off, movement), total), relative(less(off, rounding), size)


def norms(ours: np.ndarray, theirs: np.ndarray, start: Optional[np.ndarray] = None) -> List[float]:
    """Return the squared norms of ours - (start + theirs), start + theirs, theirs and ours - start; and a product.

    The product is that of theirs and ours - start. All are sums in float64.
    """
    sums = [0.0] * 5
    for a, b, *begin in pieces(ours, theirs, *([] if start is None else [start])):
        target, moved = (begin[0] + b, a - begin[0]) if begin else (b, a)
        pairs = ((a - target, a - target), (target, target), (b, b), (moved, moved), (moved, b))
        sums = [so_far + float(np.dot(one, other)) for so_far, (one, other) in zip(sums, pairs)]
    return sums


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return ‖a - b‖ / ‖b‖ in float64; ‖a‖ if b is all zeros; infinity for another shape."""
    return relative(*norms(ours, theirs)[:2]) if ours.shape == theirs.shape else float("inf")


def first_movement(rule: Optimiser, gradient: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the change of a parameter by the first update, in float64; the gradient is clipped already."""
    start = np.asarray(start, dtype=np.float64)
    whole = np.asarray(gradient, dtype=np.float64)
    decay = decay_of(rule, start.shape) * start
    if not isinstance(rule, Adam):
        return -rule.lr * (whole + decay)  # type: ignore[no-any-return]
    whole = whole if rule.decoupled else whole + decay
    root = math.sqrt(1.0 - rule.beta2) * np.abs(whole)
    moved = -rule.rate(1) * (1.0 - rule.beta1) * whole / (root + rule.epsilon)
    return moved - rule.lr * decay if rule.decoupled else moved  # type: ignore[no-any-return]


def less(off: float, excused: float) -> float:
    """Return the square of a norm, given by its square, less what is excused of it; infinity and NaN stay."""
    return max(0.0, math.sqrt(off) - excused) ** 2 if off < float("inf") else off


def relative(off: float, size: float) -> float:
    """Return the ratio of two norms given by their squares; the first norm if the second is zero."""
    return math.sqrt(off / (size or 1.0)) if off - off == 0.0 else off


def pieces(*tensors: np.ndarray) -> Iterator[List[np.ndarray]]:
    """Yield the tensors side by side in float64, a piece at a time: AlexNet's largest has 38 million numbers."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for begin in range(0, flat[0].size, PIECE):
        yield [tensor[begin : begin + PIECE].astype(np.float64) for tensor in flat]


def save_all(folder: str, kind: str, tensors: Arrays) -> None:
    for name, tensor in tensors.items():
        save(folder, f"{kind}.{name}", tensor)


def save(folder: str, name: str, tensor: np.ndarray) -> None:
    """Store one tensor in float32."""
    np.save(f"{folder}/{name}.npy", np.asarray(tensor, dtype=np.float32))


def load(folder: str, name: str) -> np.ndarray:
    return np.load(f"{folder}/{name}.npy", mmap_mode="r")  # type: ignore[no-any-return]
