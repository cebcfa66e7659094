"""What "adapter" means: it joins, it is proven, it measures every pass; `test_refusals` has what it cannot do.

Runs every adapter that is ready on this machine through its own interpreter.
"""

import pytest

from suite.case import PASSES, Case, Sampling
from suite.errors import Unavailable
from suite.observer import Observer
from suite.plan import Resolved
from suite.plugins import adapters, workloads
from suite.proof.proofs import Proofs
from suite.proof.verify import Wanted, cases_to_verify
from suite.session import Session, Settings, ready
from suite.store import RunFolder
from workloads.kinds import KINDS

BRIEF = Sampling(warmup_steps=5, warmup_limit=2.0, steps=3, seconds=0.1, processes=1, quick=True)
PROVABLE = [name for name in adapters() if name != "reference"]
CASES = [case for case, refused in cases_to_verify(Wanted(PROVABLE, ["mnist_small"])) if refused is None]


def name(case: Case) -> str:
    return f"{case.adapter}-{case.strategy}-{case.tuning}"


@pytest.fixture(params=CASES, ids=name)
def case(request, tmp_path):
    try:
        ready(request.param, {}, tmp_path / "bundle")
    except Unavailable as error:
        pytest.skip(str(error))
    return request.param.on(sampling=BRIEF, passes=PASSES)


@pytest.fixture
def record(case, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create({})
    Session(folder, [Resolved(case, None, "")], {}, Observer(), Settings()).run()
    return folder.record(case.id, 0), folder.proofs()


def test_it_is_proven_and_measures_every_pass_that_has_something_to_measure(case, record):
    found, proofs = record
    assert found["outcome"] == "ok", found["reason"]
    proof = proofs[found["proof"]]
    assert proof["passed"], proof["reason"]
    several = case.placement.device_count > 1
    expected = {"native", "staged"} | ({"compute_only", "comm_only"} if several else set())
    assert len(found["ranks"]) == case.placement.ranks
    for rank in found["ranks"]:
        assert set(rank["passes"]) == expected
        assert rank["joined"]["world"] == case.placement.ranks
        assert rank["joined"]["versions"]
        counts = {len(measured["step_s"]) for measured in rank["passes"].values() if measured["pass"] == "native"}
        assert counts == {len(found["ranks"][0]["passes"]["native"]["step_s"])}


def test_it_proves_a_network_of_every_kind_of_layer(case, tmp_path):
    probe = case.on(workload="probe", graph_digest="")
    item = ready(probe, {}, tmp_path / "bundle")
    proof = Proofs({}).prove(item, tmp_path)
    assert proof["passed"], proof["reason"]


def test_the_probe_holds_every_kind():
    kinds = {layer.kind for layer in workloads()["probe"].graph().layers}
    assert kinds == set(KINDS)
