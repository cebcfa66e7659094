"""Loads: how a predictor is asked, by the words of MLPerf's LoadGen (https://github.com/mlcommons/inference).

`stagebench.suite.worker.pass_kinds` declares them. A query begins with samples in the host's memory, and ends when its
answers are there.
"""

import itertools
from typing import Dict, Iterator, List, Optional, Union

import numpy as np

from stagebench.suite.worker.arrivals import Asked, InProcess, tries
from stagebench.suite.worker.asking import Asking
from stagebench.suite.worker.elsewhere import Elsewhere
from stagebench.suite.worker.feed import RESIDENT, synthetic
from stagebench.suite.worker.job import Measure
from stagebench.suite.worker.loop import Loop, Side, Timed
from stagebench.suite.worker.messages import HostUse, Pass, ServerUse, Try
from stagebench.suite.worker.model_server import Behind
from stagebench.suite.worker.one_address import OneAddress
from stagebench.suite.worker.pass_kinds import BY_NAME, OFFLINE
from stagebench.suite.worker.predictor import Predictor, overlapped
from stagebench.suite.worker.ranks import Outbox
from stagebench.workloads.graph import Graph

DISTINCT = 16  # samples, at least, that are asked for in turn


class Loads:
    """A runner of loads, on one predictor."""

    def __init__(self, predictor: Predictor, graph: Graph, loop: Loop) -> None:
        """The network is loaded."""
        self._predictor, self._graph, self._loop = predictor, graph, loop
        self.host_use: Optional[HostUse] = None  # during the load that gives the speed

    def run(self, name: str) -> Pass:
        """Run one load."""
        setup = self._predictor.setup
        samples = BY_NAME[name].query or setup.batch
        asked = itertools.cycle(self._queries(samples))
        # Offline no device is ever idle: the first answers come with the second query.
        answers = overlapped(self._predictor, asked) if name == OFFLINE else map(self._predictor.answer, asked)

        def body() -> None:
            next(answers)  # and dropped: those of a long pass do not fit into memory

        timed, aside, use = self._loop.undisturbed(name, Side(body))
        share = BY_NAME[name].query or setup.batch // setup.model_parallel_size
        found = _result(name, timed, share)._replace(set_aside_s=aside)
        if name != OFFLINE:
            return found._replace(host_use=use)
        self.host_use = use
        return found

    def tries(self, task: Measure, outbox: Outbox) -> "Iterator[Union[ServerUse, Try]]":
        """Run the load `server`, in process or behind a model server."""
        seed = self._predictor.setup.seed
        asked = Asked(self._predictor, synthetic(self._graph, DISTINCT, (seed, 1)).inputs)
        if task.model_server is None:
            inside = InProcess(asked, task.serving)
            yield from tries(inside.attempt, inside.capacity(), task, seed, outbox.progress)
            return
        rule, own = task.serving, task.model_server
        asking: Asking
        if rule.address:
            asking = Elsewhere(asked, rule, own)
        elif self._predictor.setup.world > 1:
            asking = joined = OneAddress(asked, rule, own, outbox)
            if self._predictor.setup.rank:
                with joined.running():
                    joined.answer()
                return
        else:
            asking = Behind(asked, rule, own, outbox.folder)
        with asking.running() as server:
            yield from tries(server.attempt, server.capacity(), task, seed, outbox.progress)
            yield server.use()

    def _queries(self, samples: int) -> List[np.ndarray]:
        seed = self._predictor.setup.seed
        count = max(RESIDENT, DISTINCT // samples)
        return [synthetic(self._graph, samples, (seed, 0, number)).inputs for number in range(count)]


def _result(name: str, timed: Timed, samples: int) -> Pass:
    count = len(timed.step_s) * samples
    return Pass(name, count, timed.steady, timed.warmup_s, timed.step_s, timed.wall_s)


def tensors_of(graph: Graph, initial: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """Return a new network's parameters, and its running statistics: mean 0 and variance 1."""
    statistics = {name: np.full(shape, float(name.endswith("running_var"))) for name, shape in graph.buffers}
    return {**initial, **statistics}
