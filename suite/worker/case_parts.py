"""The parts of a case that its ranks read; each is defined here once, for plans, cases, records and jobs."""

import math
from typing import Any, Callable, Dict, NamedTuple

ITEMSIZES = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of a number, by the type that is exchanged


class Sampling(NamedTuple):
    """How long to measure, and how much of it before a number counts."""

    warmup_steps: int = 10  # at least; then until the steps no longer get quicker
    warmup_limit: float = 30.0  # seconds, after which a warm-up that still gets quicker ends and its row is marked
    steps: int = 50  # at least
    seconds: float = 10.0  # at least, per pass and process
    processes: int = 5  # process groups per case, started one after the other; each measures the speed
    breakdowns: int = 3  # the number of them that run the other passes, too
    quick: bool = False  # True: less than a full measurement, whose rows are marked


class Input(NamedTuple):
    """How real data are read."""

    mode: str = "disk"  # "disk": decoded during training; "memory": decoded once, before it begins
    page_cache: str = "as is"  # before every pass: "cold" drops the files from it, "warm" reads them into it
    prefetch: int = 2  # batches read ahead, per reader
    repeat: int = 1  # passes over the data set per epoch
    augment: str = "centre"  # "centre": the centre crop; "random": resized crops and flips (image folders)
    on_error: str = "fail"  # "fail", or "skip": an unreadable sample is replaced by the next one, and counted
    format: str = "files"  # "files": unpacked; else packed for the framework's own reader: "tfrecord", ...


class Training(NamedTuple):
    """The settings of the pass `train`."""

    epochs: int = 10
    held_out: float = 0.2  # the share of the data set on which accuracy is tested, which is not trained on
    target: float = 0.98  # an accuracy; the first epoch that reaches it, and its time, are reported
    patience: int = 0  # the number of epochs without a better accuracy after which training stops early; 0: never


# Queries that a percentile wants, by LoadGen's early stopping (stagebench.suite.analysis.latency).
FLOORS = {0.9: 64, 0.95: 130, 0.99: 662, 0.999: 6636}


ARRIVALS = ("poisson", "bursts")  # besides the path of a trace
BURST = 8  # queries that arrive at once
PER_DECADE = 10  # rates: 1, 1.26, 1.58, ..., the same for all cases, whose latencies can then be compared
ROUNDS = 2  # of all rates, the second one backwards: drift hits all alike
MOST_WORKERS = 64  # of a model server


class Serving(NamedTuple):
    """How the load `server` batches queries, and the latency that it bounds."""

    max_delay_ms: float = 0.0  # that the oldest query waits for others of its batch, which has at most the case's batch
    bound_ms: float = 100.0  # that `bound_share` of the latencies keep at the rate that is looked for
    bound_share: float = 0.99  # one of FLOORS
    model_server: str = "inprocess"  # the plugin that takes the queries; "inprocess": no server
    workers: int = 1  # processes of the server that answer batches
    arrivals: str = "poisson"  # of single queries; "bursts": of BURST at a time; else the file of a trace
    address: str = ""  # of a model server that runs elsewhere; "": it is started here
    options: Dict[str, Any] = {}  # the model server's own


# The factor of the rate from the end of the warm-up (0.0) to the end of the training (1.0). The steps are those of
# Goyal et al. 2017 (arXiv 1706.02677, section 5.1), epochs 30, 60 and 80 of 90; cosine: Loshchilov and Hutter 2017.
DECAYS: Dict[str, Callable[[float], float]] = {
    "none": lambda done: 1.0,
    "steps": lambda done: 0.1 ** sum(done >= mark / 9.0 for mark in (3, 6, 8)),
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
    "linear": lambda done: 1.0 - done,
}


class Schedule(NamedTuple):
    """How the learning rate changes in the pass `train`: a factor of the case's own rate at every update."""

    warmup_epochs: float = 0.0  # over which it rises in a straight line, from one step's share to the whole
    decay: str = "none"  # a name of DECAYS

    @property
    def words(self) -> str:
        """The addition to the optimiser in a label; "" for a constant rate."""
        rising = f"warm-up of {self.warmup_epochs:g} epochs" if self.warmup_epochs else ""
        falling = f"{self.decay} decay" if self.decay != "none" else ""
        return ", ".join(filter(None, (rising, falling)))

    @property
    def changing(self) -> bool:
        """True if the rate ever changes."""
        return self != Schedule()

    def factor(self, update: int, updates: int, per_epoch: float) -> float:
        """Return the factor of the case's rate at an update, counted from 0, of `updates` in the whole training."""
        rising = min(updates, int(round(self.warmup_epochs * per_epoch)))
        if update < rising:
            return (update + 1.0) / rising
        return DECAYS[self.decay]((update - rising) / (updates - rising))
