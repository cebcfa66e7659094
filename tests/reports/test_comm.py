"""The page of a run of `stagebench comm`."""

import csv
import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from stagebench.reports import command
from stagebench.reports.exports.write import charts_of
from stagebench.reports.exports.write import write as export
from stagebench.reports.pages.comm import bandwidths, gradients, panels_of, times
from stagebench.reports.site.build import write
from stagebench.suite.analysis.links import SIMULATED, links
from stagebench.suite.cli.comm_tables import cells, show_summary
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.collectives import gradient_tensors
from stagebench.suite.plugins import workloads
from stagebench.suite.results.records import COMM, About
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.messages import OverlapTimes
from tests.reports.made_comm import ALPHA, BETA, SIZES, communication
from tests.support.sent import hello_json


def panels(folder):
    return panels_of([link for link in links(folder) if link.singles and not link.network])


def render(folder):
    return write(folder, folder.path / "out").read_text()


def disturbed(folder, operation):
    """Rewrite the record of an operation: others used half of the host's cores."""
    entry = next(entry for entry in folder.cases if entry.case.collective.operation == operation)
    record = folder.record(entry.id, 0)
    use = {"seconds": 10.0, "cores": 2, "busy_cpu_s": 20.0, "own_cpu_s": 10.0, "steal_cpu_s": 0.0}
    noise = {"reference_before_s": (0.01,), "reference_after_s": (0.01,), "comm": use}
    folder.write_record(record.but(digest="", ranks=tuple(rank.but(noise=noise) for rank in record.ranks)))


MACHINE = {"cpu": "AMD EPYC 7B13", "governor": "performance"}


def moved(folder, operation="", **changes):
    """Rewrite the records of an operation, or all: their ranks ran on such a machine."""
    hello = {"host": "bench", "pid": 1, "cores": (0, 1), "host_cores": 2, "machine": {**MACHINE, **changes}}
    for record in list(folder.records()):
        if operation in ("", record.case.collective.operation):
            ranks = tuple(rank.but(hello=hello_json(**{"world": 2, **hello})) for rank in record.ranks)
            folder.write_record(record.but(digest="", ranks=ranks))


@pytest.fixture
def folder(tmp_path):
    return communication(tmp_path / "run")


@pytest.mark.parametrize(("boots", "simulated"), [(("k", "k"), True), (("k", "l"), False), (("", ""), False)])
def test_a_link_between_hosts_of_one_machine_says_so(folder, capsys, boots, simulated):
    for record in list(folder.records()):
        hosts = zip(record.ranks, "ab", boots, strict=True)
        ranks = [rank.but(hello=rank.hello._replace(host=host, boot=boot)) for rank, host, boot in hosts]
        folder.write_record(record.but(ranks=tuple(ranks)))
    found = list(links(folder))
    show_summary(found)
    assert (SIMULATED in panels(folder)[0].note) is simulated
    assert (SIMULATED in " ".join(capsys.readouterr().out.split())) is simulated
    assert found[0].to_dict()["simulated"] is simulated


def test_the_page_has_every_part_and_escapes_what_others_wrote(folder, tmp_path):
    page = write(folder, tmp_path / "out").read_text()
    assert "All ranks begin a sample at the same time" in page
    assert "where servers sum (kvstore), it follows the same formula and is no wire" in page
    assert "non-blocking operations as they were begun" in page
    for part in ("links", "fits", "gradients", "overlap", "outcomes", "method", "machine"):
        assert f'<section id="{part}">' in page
    assert page.index('class="panels"') < page.index("Host a"), "charts come first"
    words = ("the &lt;wire&gt; was cut", "A &lt;fast&gt; one", "tox run -e absent", "each by itself, added up")
    tensor = gradient_tensors(workloads()["mnist_small"])[0][0]
    assert [each for each in (*words, tensor, "50.0 %", "90.0 %") if each not in page] == []


def test_charts_draw_the_fit_beside_what_was_measured_in_seconds_and_bandwidth(folder):
    (panel,) = panels(folder)
    assert panel.title == "wire, 2 ranks"
    chart = times(panel)
    assert [len(one.lines) for one in (chart, bandwidths(panel))] == [4, 4]
    measured, fit = chart.lines[:2]
    assert measured.x == SIZES
    assert measured.y == pytest.approx([1e6 * (ALPHA + BETA * size) for size in SIZES])
    assert fit.y[-1] == pytest.approx(measured.y[-1])
    assert chart.log == "xy"
    one = panel._replace(links=[link for link in panel.links if link.collective.operation == "all-reduce"])
    points, fit = bandwidths(one).lines
    expected = [size / (ALPHA + BETA * size) / 1e6 for size in SIZES]
    assert points.y == pytest.approx(expected)
    assert fit.y[0] == pytest.approx(expected[0])
    assert len(times(one).lines[0].low) == len(SIZES)
    assert points.low == ()
    assert list(dict(charts_of(folder))) == ["links-0-time", "links-0-bandwidth"]


def test_a_fit_that_is_not_printed_is_not_drawn(folder):
    """Near a line, but one of its two parameters may as well be another."""
    (panel,) = panels(folder)
    link = next(link for link in panel.links if link.fit)
    assert len(times(panel._replace(links=[link])).lines) == 2
    for unknown in ("alpha_error", "beta_error"):
        open_ = replace(link, fit=replace(link.fit, **{unknown: 1.0}))
        assert open_.fit.describes
        for chart in (times, bandwidths):
            assert [line.kind for line in chart(panel._replace(links=[open_])).lines] == ["rest"]


def began_late(folder):
    """Rewrite every record: all samples of its largest message, and of its overlap, began a second late."""
    for record in list(folder.records()):
        largest = max((row.bytes for rank in record.ranks for row in rank.exchanges), default=0)

        def late(row, largest=largest):
            counts = row.bytes == largest or isinstance(row, OverlapTimes)
            return row._replace(late_s=[1.0] * 5, clock_error_s=1e-6) if counts else row

        ranks = tuple(rank.but(exchanges=tuple(map(late, rank.exchanges))) for rank in record.ranks)
        folder.write_record(record.but(digest="", ranks=ranks))


def test_a_message_that_always_began_late_has_no_figure_anywhere(folder, tmp_path, capsys):
    began_late(folder)
    found = list(links(folder))
    first = next(link for link in found if link.collective.operation == "all-reduce" and not link.network)
    assert [point.bytes for point in first.without_figure] == [SIZES[-1]]
    (panel,) = panels(folder)
    assert times(panel).lines[0].x == SIZES[:-1]
    assert "all-reduce: no figure for 64 KiB, since fewer than 5 samples began in time" in panel.note
    page = render(folder)
    assert "not determined" in page
    show_summary(found)
    assert "no figure, since fewer than 5 samples began in time on every rank: wire" in capsys.readouterr().out
    row = next(point for point in first.points if point.bytes == SIZES[-1])
    assert cells(row) == ["64 KiB", "1", "", "", "", "", "", "0", "5"]
    (tensors,) = [gradients(link) for link in found if link.network]
    assert tensors.whole[-1][1].seconds is None
    rows = json.loads(export(folder, "json", tmp_path / "out").read_text())
    largest = [row for row in rows if row["bytes"] == SIZES[-1] and row["operation"] == "all-reduce"]
    assert {row["exchange_s"] for row in largest} == {None}
    assert export(folder, "markdown", tmp_path / "out").read_text()


def test_tensors_are_named_and_added_up(folder):
    (link,) = [link for link in links(folder) if link.network]
    found = gradients(link)
    names = [name for name, _ in gradient_tensors(workloads()["mnist_small"])]
    assert [name for name, _ in found.tensors] == names
    assert [how for how, _ in found.whole] == ["all in a row", "all begun, then waited for", "one flat buffer"]
    whole = found.whole[0][1].bytes
    assert found.alone == pytest.approx(len(names) * ALPHA + BETA * whole)


def test_tables_hold_every_message_and_what_failed(folder, tmp_path):
    lines = json.loads(export(folder, "json", tmp_path).read_text())
    described = json.loads(export(folder, "schema", tmp_path).read_text())["items"]
    assert all(set(line) == set(described["required"]) for line in lines)
    found = {line["bytes"]: line["exchange_s"] for line in lines if line["operation"] == "all-reduce"}
    assert found[SIZES[0]] == pytest.approx(ALPHA + BETA * SIZES[0])
    assert [(line["outcome"], line["bytes"]) for line in lines[-2:]] == [("crash", None), ("unavailable", None)]
    with export(folder, "csv", tmp_path).open() as stream:
        assert len(list(csv.DictReader(stream))) == len(lines)
    points = sum(line["bytes"] is not None for line in lines)
    latex = export(folder, "latex", tmp_path).read_text()
    assert latex.count(r" \\") == points + 2  # the head, the note
    assert latex.isascii(), "beside its commands: what LaTeX's usual encoding has not is an error there"
    assert export(folder, "markdown", tmp_path).read_text().count("\n| wire") == points
    with pytest.raises(RequestError, match=r"has no trace; export one of csv, json"):
        export(folder, "trace", tmp_path)


def test_report_knows_such_a_run_also_without_anything_measured(folder, tmp_path):
    app = typer.Typer()
    app.callback()(lambda: None)
    command.stagebench_commands(app)
    run = CliRunner()
    told = run.invoke(app, ["report", str(folder.path), "-o", str(tmp_path / "out")])
    assert told.exit_code == 0, told.output
    assert told.output == f"Report: {tmp_path / 'out' / 'index.html'}\n"
    told = run.invoke(app, ["report", str(folder.path), "--json"])
    assert [link["outcome"] for link in json.loads(told.stdout)] == ["ok", "ok", "ok", "crash", "unavailable"]
    assert not (folder.path / "report").exists()
    empty = RunFolder(tmp_path / "empty")
    empty.create(About(kind=COMM))
    empty.write_cases([])
    assert "No operation has been measured" in render(empty)


def test_a_disturbed_link_is_named_on_the_page_and_in_the_terminal(folder, capsys):
    assert not any(link.marks for link in links(folder))
    disturbed(folder, "point-to-point")
    page = render(folder)
    assert "disturbed: point-to-point" in page
    assert "How noisy it was" in page
    assert "1 of 3 processes were disturbed" in page
    show_summary(list(links(folder)))
    assert "disturbed: wire point-to-point, 2 ranks: during at least one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "mark", "words"),
    [
        ({"cpu": "AMD EPYC 9B14"}, "other machine", "one of its processes ran on another machine than the rest"),
        ({"governor": "powersave"}, "other driver or governor", "one of its processes ran with another GPU driver"),
    ],
)
def test_a_link_that_was_measured_on_another_machine_than_the_others_is_marked(folder, capsys, changes, mark, words):
    """A run that was begun on one machine and goes on upon another."""
    moved(folder)
    assert not any(link.marks for link in links(folder))
    moved(folder, "point-to-point", **changes)
    marks = {link.collective.operation: link.marks for link in links(folder) if link.singles}
    assert marks == {operation: (mark,) if operation == "point-to-point" else () for operation in marks}
    assert len(marks) > 1
    (panel,) = (each for each in panels(folder) if any(link.marks for link in each.links))
    assert f"{mark}: point-to-point ({words}" in panel.note
    names = [line.name for line in times(panel).lines if line.name]
    assert f"point-to-point ({mark})" in names
    assert names.count("all-reduce") == 1
    assert f'<th scope="row">point-to-point ({mark})</th>' in render(folder)
    show_summary(list(links(folder)))
    assert f"{mark}: wire point-to-point, 2 ranks: {words}" in capsys.readouterr().out
    assert [link.to_dict()["marks"] for link in links(folder) if link.marks] == [[mark]]


def test_a_hidden_share_that_is_noise_is_no_number(folder, capsys):
    (link,) = [link for link in links(folder) if link.overlaps]
    show_summary([link])
    assert "not determined" not in capsys.readouterr().out
    unknown = replace(link, overlaps=tuple(replace(each, hidden=None) for each in link.overlaps))
    show_summary([unknown])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("wire") and "64 KiB" in line]
    assert "not determined" in line
    assert line.split()[-1] == "90%", "the other share is one"
