"""A framework that dies, hangs, floods or kills its process costs one row, which says so; the others go on.

The fault is real: a module of the framework's name stands before it on the worker's path.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.launcher import Launcher, Process, Request
from stagebench.suite.plugins import manager
from stagebench_conformance.base import BRIEF, Conformance
from stagebench_conformance.measured import record_of, run

SILENCE = 5.0  # seconds that a module sleeps before the watchdog gives up
ALONE = 15.0  # and a rank that waits for its servers

# Replaces itself by the real module, after having said too much.
FLOOD = """
import importlib, os, sys, warnings
sys.stderr.write(("a warning that nobody reads " * 40 + chr(10)) * 4000)
sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
del sys.modules[__name__]
importlib.import_module(__name__)
"""
FAULTS = {  # seed: (what the module does, outcome, words of the reason)
    1: ("raise ImportError('libdriver.so.9: cannot open shared object file')", "crash", "libdriver.so.9"),
    2: ("import time; time.sleep(1000)", "timeout", "sent no message for"),
    3: ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "crash", "SIGKILL"),
    4: (FLOOD, "ok", ""),
}
SURVIVES = 4  # the last one: after the others it measures all the same


class Faults(Conformance):
    """Needs the framework's environment."""

    def test_a_fault_of_its_framework_is_one_row_and_the_others_go_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One session: each fault has the outcome that it means and a reason that names it; the last one measures."""
        cases = {seed: self._case(seed) for seed in FAULTS}
        self.launch(cases[SURVIVES], tmp_path)
        self._shadow(tmp_path, monkeypatch)
        found = run(list(cases.values()), tmp_path / "run", proofs=False)
        records = {seed: record_of(found, case) for seed, case in cases.items()}
        for seed, (_, outcome, words) in FAULTS.items():
            assert records[seed].outcome == outcome, records[seed].reason
            assert words in records[seed].reason
        assert records[SURVIVES].ranks[0].passes[cases[SURVIVES].speed_pass].step_s

    def test_ranks_that_an_engine_did_not_connect_are_a_fault(self, tmp_path: Path) -> None:
        """A process that believes to be the only rank where two were asked for, as a foreign mpiexec makes them.

        One that meets its servers first waits for them in vain, and the silence limit ends it.
        """
        strategy = next((each for each in self.it().capabilities.strategies if each.distributed), None)
        if strategy is None or not self.cases():
            pytest.skip(f"{self.adapter} has no strategy of several ranks")
        placement = Placement(ranks_per_node=2, launcher=Lonely.name)
        case = self._case(0).on(strategy=strategy.name, placement=placement)
        meets_servers = bool(self.it().sidecars(case))
        case = case.on(silence_limit=ALONE) if meets_servers else case
        with registered():
            self.launch(case, tmp_path)
            record = record_of(run([case], tmp_path / "run", proofs=False), case)
        assert record.outcome == ("timeout" if meets_servers else "crash"), record.reason
        assert ("sent no message for" if meets_servers else "rank 0 of 2 was asked for") in record.reason

    def _case(self, seed: int) -> Case:
        limit = SILENCE if FAULTS.get(seed, ("", "", ""))[1] == "timeout" else 300.0
        plain = self.plain()
        return plain.on(seed=seed, batch=4, passes=(plain.speed_pass,), sampling=BRIEF, silence_limit=limit)

    def _shadow(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        """Put each fault where the worker of its case finds it first."""
        adapter = self.it()
        module, kind, own = (adapter.requires or ("numpy",))[0].split(".")[0], type(adapter), adapter.environ
        for seed, (source, _, _) in FAULTS.items():
            (folder / str(seed)).mkdir()
            (folder / str(seed) / f"{module}.py").write_text(source)

        def environ(_: Any, case: Case, interpreter: Path) -> dict[str, str]:
            place = {"PYTHONPATH": str(folder / str(case.seed))} if case.seed in FAULTS else {}
            return {**own(case, interpreter), **place}

        patch.setattr(kind, "environ", environ)


class Lonely(Launcher):
    """Starts one process, as rank 0 of 1, however many ranks were asked for."""

    name = "lonely"
    title = "a process that knows of no other"

    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        """Nothing."""
        return None

    def processes(self, request: Request) -> list[Process]:
        """One: more of them would all be rank 0, and write one file and listen at one port, whoever comes first."""
        variables = {
            **request.environ,
            "STAGEBENCH_RANK": "0",
            "STAGEBENCH_WORLD": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(request.port),
        }
        return [Process(request.command, variables, 0)]


class LonelyPlugin:
    """Brings the launcher."""

    @hookimpl
    def stagebench_launchers(self) -> list[Launcher]:
        """Lonely alone."""
        return [Lonely()]


@contextmanager
def registered() -> Iterator[None]:
    """Known to this process for as long as the block lasts."""
    plugin = LonelyPlugin()
    manager().register(plugin)
    try:
        yield
    finally:
        manager().unregister(plugin)
