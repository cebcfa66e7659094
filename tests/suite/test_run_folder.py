"""What a run folder keeps, sets aside and says: its files, networks, plan, invalid records."""

import json
import os
import platform
import shutil
import socket
from pathlib import Path

import pytest

from stagebench.reports.site import build
from stagebench.suite.errors import RequestError, StoreError
from stagebench.suite.plan.networks import network_of
from stagebench.suite.results import records, run_folder, stored
from stagebench.suite.results.invariants import broken
from stagebench.suite.results.rank_report import models
from stagebench.suite.results.records import About, Host
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import CASES, FORMAT, LARGEST, SMALL, Outsized, parsed, read, readable, text_of
from stagebench.suite.worker.machine import cores
from stagebench.suite.worker.messages import Machine
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks import by_name
from tests.reports.made_run import case_of
from tests.support.errors import raising


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run").begin(About(id="a"), "one = 1\n")


def test_its_files_are_read_by_people_too(folder):
    text = (folder.path / "run.json").read_text()
    assert text == json.dumps(json.loads(text), indent=1) + "\n"
    assert text.startswith(f'{{\n "format": {FORMAT},\n "digest": "')
    assert {path.name for path in folder.path.iterdir()} == {
        *("run.json", "plan.toml", "records", "proofs", "attempts", "bundles", "hosts")
    }


def test_what_a_killed_session_had_half_written_is_gone_when_the_next_one_begins(folder):
    half = [folder.path / "run.json.7.partial", folder.path / "records" / "abc-r0.json.7.partial"]
    evidence = folder.attempt("abc", 0) / "rank-0.partial"
    for path in (*half, evidence):
        path.write_text("{")
    folder.begin(About(id="a"), "one = 1\n")
    assert not any(path.exists() for path in half)
    assert evidence.exists()
    assert folder.attempt("abc", 0) == evidence.parent, "it may be there already"


def test_a_record_names_the_plan_that_is_there_when_it_is_written_and_a_run_that_is_gone(run):
    record = run.folder.record(run.proven(case_of(), repeats=1).id, 0)
    assert record is not None
    (run.folder.path / "records" / f"{record.case_id}-r0.json").unlink()
    run.folder.adopt_plan("another = 1\n")
    run.folder.write_record(record)
    assert RunFolder(run.folder.path).unusable() == []
    shutil.rmtree(run.folder.path)
    with raising(StoreError, "records"):
        run.folder.write_record(record)


@pytest.mark.parametrize(
    ("cpu", "device", "expected"),
    [("Xeon", "cpu", {"Xeon"}), (None, "cpu", {"unknown"}), ("Xeon", "cuda", {"Xeon", "NVIDIA H100", "odd"})],
)
def test_a_host_s_models_are_those_that_compute(cpu, device, expected):
    machine = Machine(cpu=cpu, gpus=["GPU 0: NVIDIA H100 (UUID: GPU-1)", "odd"])
    assert models([machine], device) == expected


def test_a_network_is_kept_and_found_again(folder):
    graph = by_name()["mnist_small"].graph()
    case = case_of(workload="mnist_small", graph_digest=graph.digest)
    assert network_of(folder.path, case) is not None, "the catalogue's, where none is kept"
    assert network_of(folder.path, case_of(workload="gpt_char@999", graph_digest=graph.digest)) is None
    for _ in range(2):
        folder.keep_network(graph)
    kept = folder.path / "networks" / "mnist_small.json"
    assert kept.read_text() == json.dumps(graph.to_dict(), indent=1) + "\n"
    found = network_of(folder.path, case)
    assert found is not None
    assert found.digest == graph.digest
    assert network_of(folder.path, case.on(graph_digest="another")) is None
    own = Graph.from_dict({**graph.to_dict(), "name": "mine"})
    folder.keep_network(own)
    assert network_of(folder.path, case.on(workload="mine", graph_digest=own.digest)) is not None
    for wrong in ("[]", "{", json.dumps({**graph.to_dict(), "name": 7})):
        kept.write_text(wrong)
        with pytest.raises(StoreError, match=r"networks/mnist_small\.json.*; remove it: .*roofs"):
            network_of(folder.path, case)
    kept.unlink()
    os.mkfifo(kept)
    with pytest.raises(StoreError, match=r"networks/mnist_small\.json.*; remove it: all but roofs"):
        network_of(folder.path, case)
    shutil.rmtree(kept.parent)
    kept.parent.write_text("")
    with raising(RequestError, folder.path, "File exists"):
        folder.keep_network(graph)


def test_what_was_invalid_is_kept_each_time_and_overwrites_nothing(run):
    case = run.proven(case_of(), repeats=2)
    record = run.folder.record(case.id, 0)
    assert record is not None
    path = run.folder.path / "records" / f"{case.id}-r0.json"
    aside = run.folder.path / "invalid"
    aside.mkdir()
    (aside / f"{case.id}-r0.1.json").write_text("kept")  # a person may have removed some
    for wrong in ("[]", "{}"):
        path.write_text(wrong)
        assert run.folder.record(case.id, 0) is None
        assert list(run.folder.invalid) == [path.name]
        assert run.folder.unusable()[0].startswith(f"records/{path.name} ")
        run.folder.write_record(record)
        assert run.folder.invalid == {}
        assert run.folder.record(case.id, 0) is not None
    kept = {each.name.removeprefix(f"{case.id}-r0"): each.read_text() for each in aside.iterdir()}
    assert kept == {".0.json": "[]", ".1.json": "kept", ".2.json": "{}"}
    assert run.folder.record(case.id, 2) is None


def test_records_of_some_cases(run):
    cases = [run.proven(case_of(batch=batch), repeats=batch) for batch in (1, 2)]
    (run.folder.path / "records" / "notes.txt").write_text("")
    found = [(each.case_id, each.repeat) for each in run.folder.records({cases[1].id})]
    assert found == [(cases[1].id, repeat) for repeat in (0, 1)]
    assert sum(1 for _ in run.folder.records()) == 3
    assert list(run.folder.records(())) == []


def test_a_run_that_has_records_keeps_its_plan_and_scale(folder):
    for name in ("corrected", "one"):
        begun = RunFolder(folder.path).begin(About(plan=name), f"{name} = 1\n")
        assert (begun.about.plan, (begun.path / "plan.toml").read_text()) == (name, f"{name} = 1\n")
    folder.write_cases([])
    (folder.path / "records" / "x-r0.json").write_text("")
    folder.adopt_plan("one = 1\n")
    for plan, changes in (
        ("one = 2\n", "one = 1 there, one = 2 here"),
        ("two\n", "another text"),
        (
            "a = 1\nb = 1\nc = 1\nd = 1\n",
            "no a there, a = 1 here, no b there, b = 1 here, no c there, c = 1 here, and 2 more",
        ),
        ("a = 1\nb = 1\n", "no a there, a = 1 here, no b there, b = 1 here, one = 1 there, no one here"),
    ):
        with pytest.raises(RequestError) as refused:
            folder.adopt_plan(plan)
        assert str(refused.value) == (
            f"{folder.path} was begun with another plan ({folder.path / 'plan.toml'}): {changes}; "
            "go on with that one, or name a new folder with -o"
        )
    with pytest.raises(RequestError) as refused:
        folder.adopt_plan("one = 1\n", "small")
    assert str(refused.value) == f"{folder.path} was begun without --scale; go on so, or name a new folder with -o"


def test_a_run_without_a_format_does_not_go_on(folder):
    assert not RunFolder(folder.path / "nowhere").begun
    path = folder.path / "run.json"
    content = json.loads(path.read_text())
    del content["format"]
    path.write_text(json.dumps(content))
    (folder.path / "records" / "x-r0.json").write_text("")
    with pytest.raises(RequestError, match=r"run\.json .*no format.*measure it"):
        folder.create(About())


@pytest.mark.parametrize(
    ("name", "largest", "remedy"),
    [
        ("run.json", SMALL, "put a copy of it back: without it"),
        ("cases.json", CASES, "remove it and give the run's own command again"),
        ("hosts/bench.json", SMALL, "remove it: the page then does without it"),
        ("proofs/a.json", SMALL, "remove it: the rows that name it are without proof"),
    ],
)
def test_a_file_that_is_larger_than_it_can_be_is_not_read_nor_written(run, monkeypatch, name, largest, remedy):
    run.proven(case_of(), repeats=1)
    cases = run.folder.cases
    with (run.folder.path / name).open("ab") as stream:
        stream.truncate(largest + 1)
    with raising(StoreError, name, largest + 1, remedy):
        build.write(RunFolder(run.folder.path), run.folder.path / "page", single=True)
    monkeypatch.setattr(run_folder, "CASES", 1000)
    with raising(RequestError, "cases.json", 1000):
        run.folder.write_cases(cases)


def test_a_refusal_of_a_file_names_its_place_and_the_remedy(tmp_path, monkeypatch):
    with pytest.raises(StoreError) as refused:
        read(tmp_path, About, "mend it")
    assert str(refused.value) == f"{tmp_path} is no file; mend it"
    large = tmp_path / "large.json"
    with large.open("wb") as stream:
        stream.truncate(LARGEST + 1)
    with raising(StoreError, large, LARGEST + 1, "mend it"):
        text_of(large, "mend it")
    large.write_bytes(b"[" + 5_000_000 * b"{}," + b"{}]")  # 15 MB, and more than 1 GB in memory
    with raising(StoreError, large, "mend it"):
        text_of(large, "mend it")
    monkeypatch.setattr(stored, "MEMORY", 3000)
    assert readable(20 * "[1]") == 20 * "[1]"
    with raising(Outsized, 90):
        readable(30 * "[1,")
    for text, problem in (
        ("[]", "the whole: Input should be an object"),
        ('{"format": 5, "id": 3}', "id: Input should be a valid string"),
        ('{"id": 3, "plan": 3, "x": 1}', "id: Input should be a valid string, and 2 more like it"),
    ):
        with pytest.raises(StoreError) as refused:
            parsed(About, text, Path("x"), "mend it")
        assert str(refused.value) == f"x: {problem}; mend it"


def test_this_host_is_described_and_what_is_no_run_folder_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "getloadavg", lambda: (1.234, 0.5, 0.25))
    assert records.load() == [1.23, 0.5, 0.25]
    found = records.this_host()
    assert (found.host, found.python) == (socket.gethostname(), platform.python_version())
    assert (found.cores, found.cores_installed) == (cores(), os.cpu_count())
    assert found.machine.kernel == platform.release()
    run = RunFolder(tmp_path / "run").begin(About(id="a"), "one = 1\n")
    host = Host(host="a", machine=Machine())
    run.write_host(host)
    assert run.hosts()["a"].but(digest=host.digest) == host
    (run.path / "hosts" / "a.json").rename(run.path / "hosts" / "b.json")
    with raising(StoreError, "hosts/b.json", "a"):
        run.hosts()
    with pytest.raises(RequestError) as refused:
        RunFolder.open(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path} is not a run folder (no run.json); name one that `stagebench run` or `stagebench comm` has written"
    )


def test_invariants_name_the_rank_and_a_crash_may_lack_some(run):
    case = run.proven(case_of(ranks=2), repeats=1)
    record = run.folder.record(case.id, 0)
    assert record is not None
    first, second = record.ranks
    assert broken(record) is None
    assert broken(record.but(outcome="crash", ranks=(second,))) is None
    assert broken(record.but(outcome="crash", ranks=(), seconds=0.0)) is None
    assert broken(record.but(ranks=(second, first))) == "it has the ranks [1, 0], and its case has 2"
    passes = {**second.passes, "staged": second.passes["staged"]._replace(wall_s=0.0)}
    assert broken(record.but(ranks=(first, second.but(passes=passes)))).startswith("rank 1, pass 'staged': ")
