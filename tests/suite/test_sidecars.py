"""Programs beside the ranks: started with them, ended with them, blamed when they fail."""

import math
import socket
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from stagebench.adapters.reference.plugin import Reference
from stagebench.cluster.local import Local
from stagebench.suite.contracts.case import Case, Placement, Sampling
from stagebench.suite.contracts.engine_messages import EngineFailed
from stagebench.suite.contracts.launcher import LIMITED, Process, Request, sidecar_name
from stagebench.suite.errors import Unavailable
from stagebench.suite.processes import attempt, bundle, launch, watchdog
from stagebench.suite.processes.attempt import Attempt, Limits, run
from stagebench.suite.processes.evidence import Evidence
from stagebench.suite.processes.jobs import measuring
from stagebench.suite.processes.outcome import judge
from stagebench.suite.session.cases import launch_of_case
from tests.support.errors import raising

CHECKOUT = Path(__file__).parents[2]
RANK = f"""
import os, sys, time
sys.path.insert(0, {str(CHECKOUT)!r})
from stagebench.suite.worker.messages import Done, Phase
from stagebench.suite.worker.ranks import Outbox
from tests.support.sent import failed, hello
out = Outbox(".", 0)
out.send(hello(pid=os.getpid()))
while not os.path.exists("served"): time.sleep(0.01)
"""
SERVER = "import os, sys, time; open('served', 'w').write(sys.argv[1]);"


def together(folder: Path, server: str, rank: str) -> Attempt:
    script = folder / "server.py"
    script.write_text(SERVER + server)
    processes = [
        Process((sys.executable, "-c", RANK + rank), {"STAGEBENCH_RANK": "0"}, 0),
        Process((sys.executable, str(script), "the role"), sidecar=True),
    ]
    return run(processes, 1, folder, Limits(300, 300), lambda rank, message: None)


def test_one_that_never_ends_is_ended_with_the_ranks_and_one_that_ends_well_before_ends_nothing(tmp_path):
    (tmp_path / "before").mkdir()
    found = together(tmp_path / "before", "", "time.sleep(0.5); out.send(Done())")
    assert (found.outcome, found.reason) == ("ok", "")
    found = together(tmp_path, "print(os.getpid(), flush=True); time.sleep(1000)", "out.send(Done())")
    assert (found.outcome, found.reason) == ("ok", "")
    assert (tmp_path / "served").read_text() == "the role"
    assert not psutil.pid_exists(int((tmp_path / "launcher-1.log").read_text()))
    assert found.evidence["exit_codes"] == {"rank 0": 0, "server.py the role": -15}


def test_one_that_fails_ends_the_case_and_is_named_with_its_last_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog, "GRACE", 0.5)
    found = together(tmp_path, "print('no free port'); sys.exit(7)", "time.sleep(1000)")
    assert found.outcome == "crash"
    assert found.reason == "server.py the role ended with exit code 7; its last lines: no free port"


def test_one_that_wants_more_than_the_limit_of_memory_is_named_and_the_case_is_out_of_memory(tmp_path):
    (tmp_path / "server.py").write_text(SERVER + "bytes(600 << 20)")
    (tmp_path / LIMITED).parent.mkdir(parents=True)
    (tmp_path / LIMITED).write_text((CHECKOUT / LIMITED).read_text())
    processes = [
        Process((sys.executable, "-c", RANK + "time.sleep(1000)"), {"STAGEBENCH_RANK": "0"}, 0),
        Process(bundle.script(Path(sys.executable), tmp_path, ("server.py", "the role"), 400 << 20), sidecar=True),
    ]
    found = run(processes, 1, tmp_path, Limits(300, 300), lambda rank, message: None)
    assert found.outcome == "oom"
    assert found.reason.startswith("server.py the role ended with exit code 1; its last lines: ")
    assert found.reason.endswith("MemoryError")
    assert (tmp_path / "served").read_text() == "the role"


@pytest.mark.parametrize(
    ("kills", "outcome"), [({"here": 1}, "oom"), ({"here": 0}, "crash")], ids=["for want of memory", "by somebody"]
)
def test_one_that_was_killed_is_out_of_memory_where_the_kernel_counted_it(tmp_path, monkeypatch, kills, outcome):
    monkeypatch.setattr(Evidence, "kills", lambda self, rank: sum(kills.values()))
    found = together(tmp_path, "import os; os.kill(os.getpid(), 9)", "time.sleep(1000)")
    assert found.outcome == outcome
    assert found.reason.startswith("server.py the role was ended by SIGKILL")


def test_last_words_that_an_engine_passes_on_prove_that_memory_ran_out(tmp_path):
    evidence = Evidence(1, {0: []}, {}, [], [], [], [], None, {}, (), tmp_path, math.inf)
    for words, outcome in (("its last lines: MemoryError", "oom"), ("its last lines: no free port", "crash")):
        failed = EngineFailed("crash", f"server.py ps ended with exit code 1; {words}", 1.0, certain=True)
        assert judge(replace(evidence, engine_messages=[failed]))[0] == outcome


def test_launchers_start_them_after_the_ranks_by_the_name_of_their_file(tmp_path):
    python = Path(sys.executable)
    tokens = bundle.script(python, tmp_path, ("adapters/x/server.py", "scheduler"))
    assert tokens == (sys.executable, "-B", "-u", str(tmp_path / "adapters/x/server.py"), "scheduler")
    request = Request(
        Placement(ranks_per_node=2), ("worker",), python, {"A": "1"}, tmp_path, port=29500, sidecars=(tokens,)
    )
    *ranks, server = Local().processes(request)
    assert [rank.sidecar for rank in ranks] == [False, False]
    assert (server.tokens, server.rank, server.sidecar) == (tokens, None, True)
    assert server.environ == {"A": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for limit in (0, 1 << 30):
        tokens = bundle.script(Path(sys.executable), Path("/run/bundles/x"), ("adapters/x/server.py", "ps", "0"), limit)
        assert sidecar_name(tokens) == "server.py ps 0"
    assert sidecar_name(("/bin/serve", "all")) == "serve all"


class Served(Reference):
    name = "served"

    def sidecars(self, case: Case) -> tuple[tuple[str, ...], ...]:
        return (("adapters/served/server.py",),)


BRIEF = Sampling(warmup_steps=2, warmup_limit=0.0, steps=5, seconds=0.0, processes=1, quick=True)
HANGS_ONCE = """#!/bin/sh
case "$*" in *job.json*) if [ ! -e {second} ]; then exec sleep 1000; fi;; esac
exec {python} "$@"
"""


@pytest.mark.parametrize(("beside", "outcome"), [((("stagebench.py",),), "ok"), ((), "timeout")])
def test_a_meeting_by_sidecars_that_hangs_is_tried_once_more(tmp_path, monkeypatch, beside, outcome):
    monkeypatch.setattr(launch, "adapters", lambda: {"served": Served()})
    monkeypatch.setattr(Served, "sidecars", lambda self, case: beside)
    python = tmp_path / "python"
    python.write_text(HANGS_ONCE.format(second=tmp_path / "second", python=sys.executable))
    python.chmod(0o700)
    case = Case("served", "single", "mnist_small", Placement(), passes=("native",), sampling=BRIEF, precision="float64")
    launched = launch_of_case(case, {"served": str(python)}, tmp_path / "bundle")
    (tmp_path / "attempt").mkdir()
    patience = iter([0.1, 300])  # of the try that hangs, and of the next

    def watched(limits, *rest):
        silence = next(patience)
        if silence > 1:
            (tmp_path / "second").touch()
        return watchdog.Watchdog(Limits(300, silence), *rest)

    monkeypatch.setattr(attempt, "Watchdog", watched)
    found = launched.run(tmp_path / "attempt", measuring(case, 0, launched.workload, None))
    assert (found.outcome, bool(found.evidence.get("first_try"))) == (outcome, outcome == "ok"), found.reason


def test_servers_that_would_stand_on_the_wrong_host_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "adapters", lambda: {"served": Served()})
    monkeypatch.setattr(launch, "launchers", lambda: {"local": Anywhere()})
    case = Case("served", "single", "mnist_small", Placement(hosts=("far-a", "far-b"), nodes=2, launcher="local"))
    with raising(Unavailable, "served", "single", "far-a"):
        launch_of_case(case, {}, tmp_path / "bundle")
    near = case.on(placement=Placement(hosts=(socket.gethostname(), "far-b"), nodes=2, launcher="local"))
    assert launch_of_case(near, {}, tmp_path / "bundle").configuration is near
    monkeypatch.setattr(Anywhere, "sidecars_on_first_host", True)
    assert launch_of_case(case, {}, tmp_path / "bundle").configuration is case


class Anywhere(Local):
    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        return None
