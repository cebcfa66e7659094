"""Model servers on several hosts behind one address, as `stagebench run` measures them."""

import subprocess
import sys

import pytest

from stagebench.cluster.lab.build import processes
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.haproxy import haproxy
from stagebench.suite.worker.messages import PARTS_BEHIND
from tests.support import plans
from tests.support.started import wait_until

SERVED = {"adapter": "reference", "strategy": "inference", "precision": "float64", "tuning": "default"}


@pytest.fixture
def served(request, laboratory, environment_of, head_node, tmp_path):
    """Starts a case that mosec serves on every host, which is asked for some seconds; gives the process."""
    if haproxy() is None:
        pytest.skip("no HAProxy: apt-get install haproxy")
    hosts, mosec = ",".join(laboratory.layout.hosts), environment_of("mosec")
    asked = {"model_server": "mosec", "bound_share": 0.9, "bound_ms": 5000.0, "batch": 4, "passes": ["server"]}
    sampling = {"seconds": request.param}
    (tmp_path / "plan.toml").write_text(
        plans.brief({"nodes": len(laboratory.layout.hosts), "launcher": "ssh", **asked}, sampling=sampling, **SERVED)
    )
    options = ("--hosts", hosts, "--python", f"mosec={mosec}", "--no-proofs", "-o", "run", "--json")
    tokens, variables = head_node(sys.executable, "-m", "stagebench.suite.cli", "run", "plan.toml", *options)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(tokens, env=variables, cwd=tmp_path, **pipes) as command:
        yield command
        command.kill()
    wait_until(lambda: not any(processes(host) for host in laboratory.layout.hosts))


def record_of(command, folder):
    out, err = command.communicate(timeout=300)
    assert out, err
    (record,) = RunFolder.open(folder / "run").records()
    return record


@pytest.mark.parametrize(("laboratory", "served"), [(2, 0.0), (4, 0.0)], indirect=True)
def test_all_hosts_answer_every_query_and_the_parts_are_whole(laboratory, served, tmp_path):
    record = record_of(served, tmp_path)
    assert record.outcome == "ok", record.reason
    first, *others = record.ranks
    assert len(record.ranks) == len(laboratory.layout.hosts)
    assert all((rank.tries, rank.model_server) == ((), None) for rank in others)
    assert first.model_server.processes >= 2 * len(record.ranks)
    assert first.tries
    for tried in first.tries:
        assert len(tried.latency_s) == tried.scheduled <= sum(tried.batches)
        assert (tried.wrong, tried.failed, tried.refused) == (0, 0, 0)
        assert set(tried.stage_s) == {*PARTS_BEHIND, "back"}, "all hosts read one clock"
        assert sum(tried.stage_s.values()) == pytest.approx(sum(tried.latency_s) / tried.scheduled)
    assert all(rank.wire["eth0"].sent_bytes > 0 for rank in record.ranks)


@pytest.mark.parametrize("served", [10.0], indirect=True)
def test_a_server_that_is_killed_on_one_host_ends_the_case_by_name(laboratory, served, tmp_path):
    second = laboratory.layout.hosts[1]

    def asked():
        assert served.poll() is None, served.communicate()
        written = (path.read_text() for path in (tmp_path / "run").rglob("rank-0.jsonl"))
        return any('"server", "phase": "measure"' in text for text in written)

    wait_until(asked)
    commands = {each: " ".join(each.cmdline()) for each in processes(second)}
    servers = [each for each, line in commands.items() if "mosec_program" in line and "guard" not in line]
    next(each for each in servers if each.parent() not in servers).kill()
    record = record_of(served, tmp_path)
    assert record.outcome == "crash"
    assert record.reason.startswith(f"rank 1: ServerEnded: the model server mosec on {second} ended with exit code -9")
