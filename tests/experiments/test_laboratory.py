"""Time to train over four hosts of a laboratory, and rates that change over two; before a release, as root."""

import os

import pytest

from stagebench.cluster.lab import build
from stagebench.cluster.lab.build import missing
from stagebench.cluster.lab.network import NETWORK, checked_layout
from stagebench.cluster.lab.state import SETTING
from stagebench.suite.analysis.summary import summarise
from tests.experiments.test_four_ranks import HEAD, SCHEDULED, SCHEDULES, all_proven, block
from tests.reports.parsed import Page


@pytest.fixture
def four_hosts(tmp_path, monkeypatch):
    """At 1 Gbit/s."""
    if missing():
        pytest.skip(missing())
    monkeypatch.setenv(SETTING, str(tmp_path / "laboratories"))
    state = build.up(checked_layout(f"test-{os.getpid()}-four", 4, NETWORK), "1gbit")
    yield state
    build.down(state)


@pytest.mark.parametrize(("data", "reached"), [("digits", 0.8), ("two classes", 0.5)])
def test_one_machine_two_and_four_train_alike(experiment, four_hosts, request, data, reached):
    changes = request.getfixturevalue("two_classes") if data == "two classes" else ()
    done = experiment("time-to-train", "hosts", four_hosts, changes)
    assert set(done.outcomes) == {"ok"}
    rows, hosts = summarise(done.folder), four_hosts.layout.hosts
    assert {(row.case.adapter, row.case.placement.nodes) for row in rows} == {
        (name, nodes) for name in ("pytorch", "mxnet", "caffempi", "horovod-mxnet") for nodes in (1, 2, 4)
    }
    assert len(all_proven(done.folder)) == len(rows)
    for row in rows:
        (process,), (lesson,) = row.processes, row.lessons
        assert process.about.hosts == sorted(hosts[: row.case.placement.nodes])
        assert lesson.best > reached, (row.case.label, lesson.best)
    (page,) = [text for text in done.pages.values() if 'id="time_to_train"' in text]
    table, _, rest = page.partition('id="time_to_train"')[2].partition("</table>")
    assert table.count("<tr>") == 1 + len(rows)
    connected = rest.partition("</table>")[0]
    assert connected.count("<tr>") == 1 + sum(row.case.placement.ranks for row in rows if row.several_devices)
    assert all(f"{host}</td>" in connected for host in hosts)
    assert ", ".join(sorted(hosts)) + "; gloo" in Page(page).text


def test_rates_that_change_are_proven_over_two_hosts(experiment, four_hosts, tmp_path):
    plan, over_ranks = tmp_path / "scheduled.toml", [each[:2] for each in SCHEDULES if each[2] == "ranks"]
    plan.write_text(HEAD + "\n".join(block(*each, "nodes", {}, SCHEDULED, 2) for each in over_ranks))
    done = experiment(str(plan), "", four_hosts)
    assert len(all_proven(done.folder)) == len(over_ranks)
