"""A third party's launcher, with an engine, variables and failure messages of its own, starts built-in adapters."""

import re
import sys
from pathlib import Path

import pytest

from stagebench.cluster.local import rendezvous
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.launcher import FailurePatterns, Launcher, Process, RankVariables
from stagebench.suite.plan import load, resolve
from stagebench.suite.plugins import adapters, launchers, manager, workloads
from stagebench.suite.processes.attempt import Limits
from stagebench.suite.processes.launch import launch_of
from stagebench.suite.processes.single import plain
from stagebench.suite.worker.job import Look
from stagebench.suite.worker.messages import Joined, of_type
from tests.support import plans

# motor N COMMAND...: starts N ranks; names the first that dies, and kills the others.
ENGINE = """
import os, subprocess, sys, time
world, command = int(sys.argv[1]), sys.argv[2:]
numbers = [{"MOTOR_RANK": str(rank), "MOTOR_SIZE": str(world), "MOTOR_SEAT": str(rank)} for rank in range(world)]
ranks = [subprocess.Popen(command, env={**os.environ, **each}) for each in numbers]
while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
    time.sleep(0.02)
for number, rank in enumerate(ranks):
    if rank.poll():
        print(f"motor: piston {number} stopped, by signal {-rank.poll()}", flush=True)
for rank in ranks:
    rank.kill()
sys.exit(any(rank.poll() for rank in ranks))
"""


class Motor(Launcher):
    name, title = "motor", "a third party's engine"
    several_hosts = False
    numbers = RankVariables("MOTOR_RANK", "MOTOR_SIZE", "MOTOR_SEAT")
    failures = FailurePatterns(deaths=(re.compile(r"piston (?P<rank>\d+) stopped, by signal (?P<signal>\d+)"),))

    def missing(self, placement, interpreter):
        return None

    def processes(self, request):
        tokens = (sys.executable, "-c", ENGINE, str(request.placement.ranks), *request.command)
        variables = {**request.environ, **self.numbers.environ, **rendezvous("127.0.0.1", request.port)}
        return [Process(tokens, variables, known_by=("motor",), failures=self.failures)]


class Plugin:
    @hookimpl
    def stagebench_launchers(self):
        return [Motor()]


@pytest.fixture(autouse=True)
def _registered():
    plugin = Plugin()
    manager().register(plugin)
    yield
    manager().unregister(plugin)


def test_a_plan_may_name_it_for_what_it_can_start(tmp_path):
    plan = tmp_path / "plan.toml"
    both = {"adapter": ["pytorch", "caffempi"], "strategy": ["ddp", "data_parallel"]}
    plan.write_text(plans.brief({**both, "launcher": ["motor", "auto"]}, batch=8, ranks=2))
    found = [
        (one.case.strategy, one.case.placement.launcher, one.reason)
        for one in resolve(load(plan), adapters(), launchers(), workloads())
        if "has no strategy" not in one.reason
    ]
    assert sorted(found) == [
        ("data_parallel", "motor", "caffempi/data_parallel is started by mpiexec, slurm, not by motor"),
        ("data_parallel", "mpiexec", ""),
        ("ddp", "local", ""),  # who installs a launcher still names it
        ("ddp", "motor", ""),
    ]


def test_a_built_in_adapter_s_rank_finds_its_number(tmp_path):
    configuration = plain(adapters()["reference"], workloads()["mnist_small"], placement=Placement(launcher="motor"))
    launch = launch_of(configuration, Limits(300, 300), {}, tmp_path / "bundle")
    attempt = launch.run(tmp_path, Look())
    assert attempt.outcome == "ok", attempt.reason
    assert [(each.rank, each.world) for each in of_type(Joined, attempt.messages[0])] == [(0, 1)]


def test_its_words_name_the_rank_that_died(job, launched):
    request = job(Placement(ranks_per_node=2, launcher="motor"), Path(sys.executable), "meets", {"dies": 1})
    result = launched(Motor(), request)
    assert result.outcome == "crash"
    assert result.reason.startswith("rank 1 was ended by SIGKILL")
