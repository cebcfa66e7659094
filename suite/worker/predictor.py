"""The contract of the worker side for inference: the methods of an adapter's predictor.

Order of calls, in the one process of a case, in each of those that hold a network together, or in one on each host:

    start -> load -> any number of queries -> close

A query is `place`, `run`, `fetch`: its samples go to the device, the network computes, its answers come back. One more
query may begin before the answers to one are fetched.
"""

import time
from abc import abstractmethod
from typing import Any, Iterable, Iterator

import numpy as np

from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.evidence import SEED, Oracle, meta_of
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.meeting import Meeting
from stagebench.suite.worker.member import Member
from stagebench.suite.worker.messages import Proof, ProofLosses
from stagebench.suite.worker.rendezvous import meeting_place
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads import weights
from stagebench.workloads.graph import Graph


class Predictor(Member):
    """Answers queries with a trained network, on the framework's own fastest path; `setup.batch` is the usual query."""

    compiles = False  # whether it compiles for each number of samples: queries are then filled up to few numbers

    def meet(self, joined: Joined) -> Joined:
        """Meet the other hosts' predictors, of which none needs another, unless `start` has; called after it."""
        rank, world = self.setup.rank, self.setup.world
        if joined.world == world:
            return joined
        self.group = Meeting(rank, world, meeting_place("predictors"))
        return joined._replace(rank=rank, world=world, transport="tcp")

    @abstractmethod
    def load(self, graph: Graph, tensors: Arrays) -> None:
        """Make the network with these parameters and running statistics (canonical names and layouts).

        `stagebench.suite.worker.inference_graph.for_inference` cuts the network down to what its answer needs. May be
        called again, with another network.
        """

    @abstractmethod
    def place(self, inputs: np.ndarray) -> Any:
        """Begin to bring samples, as `Batch.inputs`, to the device; of any number up to the setup's batch, or 8."""

    @abstractmethod
    def run(self, placed: Any) -> Any:
        """Begin to compute the last head's logits, in inference mode."""

    @abstractmethod
    def fetch(self, found: Any) -> np.ndarray:
        """Return the logits once they are there: (samples, classes), or (samples, positions, classes), in host memory.

        float32, or float64 in that precision. Of several ranks the first has the answers; the others return anything.
        """

    def answer(self, inputs: np.ndarray) -> np.ndarray:
        """Answer one query."""
        return self.fetch(self.run(self.place(inputs)))

    def mark(self) -> float:
        """Return the host's time: an answer is in its memory."""
        return time.perf_counter()

    def has_device_marks(self) -> bool:
        """Return False: the host's clock counts."""
        return False

    def elapsed(self, begin: float, end: float) -> float:
        """Return the seconds between two marks."""
        return end - begin


def overlapped(predictor: Predictor, queries: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the answers to queries; each begins before the answers to the one before are fetched."""
    before = None
    for query in queries:
        begun = predictor.run(predictor.place(query))
        if before is not None:
            yield predictor.fetch(before)
        before = begun
    yield predictor.fetch(before)


def prove(predictor: Predictor, graph: Graph, samples: int, folder: str) -> Proof:
    """Compare the answers of the network that the oracle has trained with the oracle's own.

    All samples at once, one alone, and a query that is filled up with another sample, whose answers nothing else may
    change; each begins before the answers to the one before are fetched.
    """
    graph = graph.without_dropout()
    initial = weights.for_proof(graph)
    meta = meta_of(folder, samples, weights.digest(initial), graph.digest)
    oracle = Oracle(folder, predictor.setup, graph, samples, initial)
    predictor.load(graph, oracle.trained())
    inputs = synthetic(graph, samples, SEED).inputs
    padded = np.concatenate([inputs[:-1], inputs[:1]])
    queries = {"all samples": (inputs, samples), "one sample": (inputs[:1], 1), "padded": (padded, samples - 1)}
    answers = overlapped(predictor, (query for query, _ in queries.values()))
    errors = {
        name: oracle.answer_error(name, found[:count], count)
        for (name, (_, count)), found in zip(queries.items(), answers)
        if count and predictor.setup.rank == 0
    }
    return Proof(
        losses=ProofLosses([], [], []),
        errors={"predict": errors},
        graph_digest=graph.digest,
        weights_digest=meta.weights,
        wrong=oracle.wrong,
        factors=oracle.factors,
    )
