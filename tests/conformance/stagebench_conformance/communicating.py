"""What an adapter's backends do: every operation that they declare, on several ranks, its results verified."""

from dataclasses import replace
from pathlib import Path

import pytest

from stagebench.suite.analysis.links import Link, links
from stagebench.suite.contracts.adapter import Backend
from stagebench.suite.contracts.case import DTYPES, FLOAT32, OPERATIONS
from stagebench.suite.errors import Unavailable
from stagebench.suite.plan import Resolved
from stagebench.suite.plan.collectives import Asked, Offer, collectives
from stagebench.suite.plugins import adapters, workloads
from stagebench.suite.results.records import COMM, About
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.session.observer import Observer
from stagebench.suite.session.resumable import Session, Settings
from stagebench_conformance.base import DEVICES, Conformance

SIZES = (4, 256, 65536)  # bytes; the last one is measured beside computation, too
TENSORS = "mnist_small"


class Communicating(Conformance):
    """`stagebench comm`, tiny."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """A test that takes `backend` runs for every one."""
        super().pytest_generate_tests(metafunc)
        if "backend" in metafunc.fixturenames:
            found = adapters()[self.adapter].backends if self.adapter in adapters() else ()
            metafunc.parametrize("backend", found, ids=lambda backend: str(backend.name))

    def test_every_backend_declares_operations_and_a_strategy_that_there_are(self) -> None:
        """Names of `stagebench.suite.contracts.case.OPERATIONS`; a distributed strategy of this adapter."""
        for backend in self.it().backends:
            assert backend.operations, f"{backend.name} declares no operation"
            assert set(backend.operations) <= set(OPERATIONS), f"{backend.name}: {', '.join(backend.operations)}"
            assert backend.dtypes[0] == FLOAT32, f"{backend.name}: {', '.join(backend.dtypes)}"
            assert set(backend.dtypes) <= set(DTYPES), f"{backend.name}: {', '.join(backend.dtypes)}"
            strategy = self.it().capabilities.strategy(backend.strategy)
            assert strategy is not None, f"{backend.name} is started as {backend.strategy!r}, which is no strategy"
            assert strategy.distributed, f"{backend.name} is started as {backend.strategy!r}, which has one rank"

    @pytest.mark.usefixtures("forked")
    def test_a_backend_exchanges_what_it_declares(self, backend: Backend, tmp_path: Path) -> None:
        """On two ranks: each operation over sizes, a network's gradient tensors, the first operation on other types.

        A wrong result is a crash. Without `every_pair`, a backend that is another library under the communicator of an
        earlier one exchanges by the first operation alone.
        """
        offer = Offer(self.it(), backend)
        first = next(each for each in self.it().backends if each.communicator == backend.communicator)
        whole = self.every_pair or backend == first
        asked = Asked(
            backend.operations[: None if whole else 1],
            SIZES,
            (TENSORS,) * ("all-reduce" in backend.operations),
            0.0,
            DEVICES,
        )
        small = replace(asked, operations=backend.operations[:1], workloads=(), dtypes=backend.dtypes[1:])
        for resolved in (*collectives(asked, offer, workloads()), *collectives(small, offer, workloads())):
            link = self._measured(resolved, backend, tmp_path / resolved.case.id)
            assert link.outcome == "ok", link.reason
            if link.network:
                assert {"single", "row"} <= {point.kind for point in link.points}
            else:
                assert [point.bytes for point in link.points][1:] == list(SIZES[1:])  # the least: a number a rank

    def _measured(self, resolved: Resolved, backend: Backend, path: Path) -> Link:
        folder = RunFolder(path)
        folder.create(About(kind=COMM))
        try:
            Session(folder, [resolved], {}, Observer(), Settings()).run()
        except Unavailable as error:
            self._absent(str(error), backend)
        (link,) = links(folder)
        if link.outcome == "unavailable":
            self._absent(link.reason, backend)
        return link

    def _absent(self, reason: str, backend: Backend) -> None:
        """Another device, or an environment that is not the adapter's own, need not be here; the rest as usual."""
        if backend.environment or backend.device != "cpu" or self.where_missing == "skip":
            pytest.skip(reason)
        raise pytest.fail.Exception(reason, pytrace=False)
