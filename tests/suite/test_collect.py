"""Runs of different cases become one run, or it is said why they cannot."""

import re
import tomllib

import pytest

from stagebench.suite.analysis.summary import summarise
from stagebench.suite.errors import RequestError, StoreError
from stagebench.suite.plan import load, resolve
from stagebench.suite.plan.networks import network_of
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.results.collect import collect
from stagebench.suite.results.records import METHOD
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.case_parts import Sampling
from stagebench.workloads.build import Builder
from tests.reports.made_run import MadeRun, case_of
from tests.support import plans
from tests.support.errors import raising


@pytest.fixture
def runs(tmp_path):
    """Two runs of one case each, as `stagebench run` leaves them, and what was measured."""
    found = []
    for batch in (8, 16):
        plan = tmp_path / f"{batch}.toml"
        plan.write_text(plans.brief({"adapter": "pytorch", "strategy": "single", "batch": batch}))
        (one,) = resolve(load(plan), adapters(), launchers(), workloads())
        run = MadeRun(tmp_path / str(batch))
        run.proven(one.case, repeats=2)
        found.append((run.folder.path, one.case))
    return found


def test_all_of_them_stand_in_the_new_one_and_its_plan_is_theirs(runs, tmp_path):
    paths, cases = zip(*runs, strict=True)
    assert collect(paths, tmp_path / "all") == 4
    joined = RunFolder.open(tmp_path / "all")
    assert [entry.id for entry in joined.cases] == [case.id for case in cases]
    assert joined.strays() == []
    assert [row.id for row in summarise(joined)] == [case.id for case in cases]
    assert all(row.proof and row.proof.passed for row in summarise(joined))
    again = resolve(load(tmp_path / "all" / "plan.toml"), adapters(), launchers(), workloads())
    assert [one.case for one in again] == list(cases)
    assert joined.about.collected == tuple(str(path) for path in paths)
    first = '# The cases of several runs.\nname = "collected"\ntitle = ""\n'
    assert (tmp_path / "all" / "plan.toml").read_text().startswith(first)


def with_own_network(path, batch, features):
    builder = Builder("own", (1, 28, 28), 10)
    builder.head(builder.dense("fc2", builder.dense("fc1", builder.flatten("flat", "input"), features), 10))
    run = MadeRun(path)
    run.folder.keep_network(builder.graph)
    case = case_of(workload="own", batch=batch, graph_digest=builder.graph.digest)
    run.refuse(case, "unavailable", "not here")
    return run.folder.path


def test_networks_of_one_s_own_come_along_and_the_plan_names_their_files(tmp_path):
    collect([with_own_network(tmp_path / str(batch), batch, 7) for batch in (8, 16)], tmp_path / "all")
    joined = RunFolder.open(tmp_path / "all")
    assert [entry.case.batch for entry in joined.cases] == [8, 16]
    assert all(network_of(joined.path, entry.case) for entry in joined.cases)
    blocks = tomllib.loads((joined.path / "plan.toml").read_text())["cases"]
    named = [(block["workload"], block["batch"]) for block in blocks]
    assert named == [("networks/own.json", 8), ("networks/own.json", 16)]


def test_different_networks_of_one_name_cannot_stand_in_one_run(tmp_path):
    first, second = with_own_network(tmp_path / "a", 8, 7), with_own_network(tmp_path / "b", 16, 9)
    with pytest.raises(RequestError, match=unlike(first, second, "hold different networks of the name 'own'")):
        collect([first, second], tmp_path / "all")


def unlike(first, second, why):
    """What a person reads of two runs that cannot be one."""
    return f"^{re.escape(f'{first} and {second} {why}; they cannot be one run: leave one of them out')}$"


def test_a_place_that_is_a_run_or_cannot_be_written_is_refused_by_name(runs, tmp_path):
    (first, _), (second, _) = runs
    with pytest.raises(RequestError, match="folder already"):
        collect([first], second)
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "all"
    with pytest.raises(StoreError, match=rf"^cannot write {place}: .*; free some space, or name an empty place with"):
        collect([runs[0][0]], place)


def test_a_case_twice_other_rules_code_or_versions_are_refused(runs, tmp_path):
    first, case = runs[0]
    twin = MadeRun(tmp_path / "twin")
    twin.proven(case, repeats=1)
    with pytest.raises(RequestError, match=rf"pytorch/single .*\({case.id}\)"):
        collect([first, twin.folder.path], tmp_path / "all")
    assert not (tmp_path / "all").exists()
    other = MadeRun(tmp_path / "other")
    other.proven(case_of(sampling=Sampling(steps=8)), repeats=1)
    why = "were measured by different rules ([sampling])"
    with pytest.raises(RequestError, match=unlike(runs[0][0], other.folder.path, why)):
        collect([runs[0][0], other.folder.path], tmp_path / "all")
    (first, _), (second, _) = runs
    for path, text in ((first, "one"), (second, "two")):
        (path / "bundles" / "pytorch").mkdir()
        (path / "bundles" / "pytorch" / "worker.py").write_text(text)
    with pytest.raises(RequestError, match=unlike(first, second, "hold different code of the adapter 'pytorch'")):
        collect([first, second], tmp_path / "all")
    folder = RunFolder.open(second)
    folder.write_about(folder.about.but(stagebench="0.0.1"))
    with pytest.raises(RequestError, match=unlike(first, second, "were measured by different versions of stagebench")):
        collect([first, second], tmp_path / "all")


def test_figures_of_another_method_and_an_invalid_record_are_refused(runs, tmp_path):
    (first, _), (second, _) = runs
    folder = RunFolder.open(second)
    for record in list(folder.records()):
        folder.write_record(record.but(method=METHOD + 1))
    why = f"give figures of different methods ({METHOD} and {METHOD + 1})"
    with pytest.raises(RequestError, match=unlike(first, second, why)):
        collect([first, second], tmp_path / "all")
    path = next((second / "records").iterdir())
    path.write_text("{}")
    with raising(RequestError, f"records/{path.name}"):
        collect([first, second], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_a_link_in_a_run_is_not_followed_out_of_the_new_one(runs, tmp_path):
    (first, _), (second, _) = runs
    (tmp_path / "elsewhere").mkdir()
    (first / "attempts" / "x").symlink_to(tmp_path / "elsewhere")
    (first / "attempts" / "y").symlink_to(first / "run.json")
    (second / "attempts" / "x").mkdir()
    (second / "attempts" / "x" / "file").write_text("")
    collect([first, second], tmp_path / "all")
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "all" / "attempts" / "y").exists()
