"""The proofs that a session makes beside its records."""

import json
import os
from dataclasses import replace

import pytest

from stagebench.cluster.local import Local
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Placement
from stagebench.suite.files import cache_folder
from stagebench.suite.results.records import About
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.session.resumable import Settings
from stagebench.suite.worker.messages import Hello, decode, of_type
from tests.suite.measuring import BRIEF, Listener, case, run


def test_a_proof_stands_beside_the_records(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    run(folder, [case()], settings=Settings(proofs=True))
    record = folder.record(case().id, 0)
    proof = folder.proofs()[record.proof]
    assert proof.passed, proof.reason
    assert proof.parameter_count == 402_442
    assert [memory.host_bytes > 1 << 20 for memory in (*proof.memory, record.ranks[0].memory)] == [True, True]


def test_a_proof_in_the_cache_that_was_changed_is_made_again(folder, tmp_path, monkeypatch):
    """Its digest is changed, or emptied, as well as its verdict."""
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    run(folder, [case()], settings=Settings(proofs=True))
    (path,) = cache_folder("proofs").glob("*.json")
    whole = path.read_text()
    for number, digest in enumerate((json.loads(whole)["digest"], "")):
        path.write_text(json.dumps({**json.loads(whole), "passed": False, "digest": digest}))
        again = RunFolder(tmp_path / str(number)).begin(About(plan="test"), "plan")
        run(again, [case()], settings=Settings(proofs=True))
        assert [proof.passed for proof in again.proofs().values()] == [True]
        assert json.loads(path.read_text())["passed"]


@pytest.mark.parametrize("binding", ["none", "cores"])
def test_a_proof_has_the_threads_and_the_cores_of_its_case(folder, tmp_path, monkeypatch, binding):
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    bound = case(placement=Placement(binding=binding))
    run(folder, [bound], settings=Settings(proofs=True))
    lines = (folder.attempt(bound.id, "proof") / "rank-0.jsonl").read_text().splitlines()
    (proving,), measuring = of_type(Hello, map(decode, lines)), folder.record(bound.id, 0).ranks[0].hello
    assert (list(proving.cores), proving.threads) == (list(measuring.cores), measuring.threads)
    assert proving.threads["OMP_NUM_THREADS"] == "1"


def test_a_proof_vouches_for_the_variables_that_its_ranks_saw(tmp_path, monkeypatch):
    """As on another host: a login's own variables, of which the controller knows nothing."""
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    plainly = Local.processes

    def measured(padding, processes):
        there = {"MALLOC_TOP_PAD_": padding}

        def processes_there(self, request):
            return [replace(each, environ={**each.environ, **there}) for each in plainly(self, request)]

        monkeypatch.setattr(Local, "processes", processes_there)
        folder = RunFolder(tmp_path / f"{padding}-{processes}").begin(About(plan="test"), "plan")
        one = case(sampling=BRIEF._replace(processes=processes))
        assert run(folder, [one], settings=Settings(proofs=True)) == {"ok": processes}
        (row,) = summarise(folder)
        assert folder.proofs(), row.proof_reason
        (proof,) = folder.proofs().values()
        seen = folder.record(one.id, 0).ranks[0].hello.arithmetic.names
        assert "MALLOC_TOP_PAD_" in seen
        return row, [each.values["MALLOC_TOP_PAD_"] for each in proof.environments]

    row, proven = measured("65536", 1)
    assert ("proof under other variables" in row.marks, proven) == (False, ["65536"])
    row, proven = measured("131072", 1)
    assert ("proof under other variables" in row.marks, proven) == (True, ["65536"])
    assert row.proof_reason == "MALLOC_TOP_PAD_: proven with '65536', measured with '131072'"
    row, proven = measured("131072", 2)
    assert ("proof under other variables" in row.marks, proven) == (False, ["131072"]), "made again"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two proofs at a time want two cores")
def test_cases_that_will_be_compared_are_proven_side_by_side_and_each_proof_once(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    seeds = ((1, 1), (2, 2), (3, 1))
    cases = [case(seed=seed, passes=("native",), knobs={"shards": shards}) for seed, shards in seeds]
    listener, told = Listener(), []
    listener.proving, listener.proved = lambda case: told.append("proving"), lambda *about: told.append("proved")
    assert run(folder, cases, listener, Settings(proofs=True)) == {"ok": 3}
    assert len({folder.record(each.id, 0).proof for each in cases}) == len(folder.proofs()) == 2
    assert told.index("proved") > 1, "another was begun before one was made"
    assert sorted(told) == ["proved"] * 3 + ["proving"] * 3
