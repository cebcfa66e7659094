import sys
from pathlib import Path

import pytest

from stagebench.cluster.local import Local
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import Request
from stagebench.suite.errors import RequestError
from stagebench.suite.worker.messages import Hello, Joined, Pass, of_type
from tests.support.started import DEATHS

HERE = Path(sys.executable)


def request_for(placement, port=29500):
    return Request(placement, ("python", "bundle", "job.json"), HERE, {"A": "1"}, Path("attempt"), port)


def test_one_process_per_rank_with_its_numbers():
    first, second = Local().processes(request_for(Placement(ranks_per_node=2)))
    assert (first.rank, second.rank) == (0, 1)
    assert first.tokens == second.tokens == ("python", "bundle", "job.json")
    assert second.environ == {
        "A": "1",
        "STAGEBENCH_RANK": "1",
        "STAGEBENCH_WORLD": "2",
        "STAGEBENCH_LOCAL_RANK": "1",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
    (process,) = Local().processes(request_for(Placement(), port=0))
    assert "MASTER_PORT" not in process.environ, "without a port there is nowhere to meet"


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        (Placement(nodes=2), "the placement asks for 2 nodes; ask for 1 node, or take another launcher"),
        (Placement(hosts=("far",)), "cannot start ranks on far; leave `hosts` out"),
    ],
)
def test_other_machines_are_refused_with_the_reason(placement, reason):
    assert reason in Local().missing(placement, HERE)
    with pytest.raises(RequestError, match="local"):
        Local().processes(request_for(placement))
    assert Local().missing(Placement(hosts=("localhost",)), HERE) is None, "this machine may be named"


def test_real_workers_run_from_the_bundle_with_their_numbers_and_threads(job, launched, monkeypatch, tmp_path):
    # Neither the working directory nor the caller's PYTHONPATH may lend them other code.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    request = job(Placement(ranks_per_node=2, threads=3), HERE, strategy="alone", environ={"TINY_WORDS": "a b 'c'"})
    result = launched(Local(), request)
    assert (result.outcome, result.reason) == ("ok", "")
    for rank in (0, 1):
        hello, joined = (of_type(kind, result.messages[rank])[0] for kind in (Hello, Joined))
        assert (hello.rank, hello.world, joined.rank, joined.world) == (rank, 2, rank, 2)
        assert joined.versions == {
            "TINY_WORDS": "a b 'c'",
            "OMP_NUM_THREADS": "3",
            "MASTER_PORT": str(request.port),
            "code": str(tmp_path / "bundles" / "tiny"),
        }
        (native,) = of_type(Pass, result.messages[rank])
        assert len(native.step_s) == 5


@DEATHS
def test_a_real_worker_that_dies_is_told(job, launched, knobs, reason):
    result = launched(Local(), job(Placement(ranks_per_node=2), HERE, strategy="alone", knobs=knobs))
    assert result.outcome == "crash"
    assert result.reason.startswith(reason)
