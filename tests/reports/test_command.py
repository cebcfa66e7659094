import json
import subprocess
import sys

import pluggy
import pytest
import typer
from typer.testing import CliRunner

from stagebench.reports import command
from stagebench.suite.contracts.hooks import PROJECT, Hooks
from stagebench.suite.errors import RequestError
from tests.reports.made_run import MadeRun, case_of


@pytest.fixture
def report(tmp_path):
    """Runs the command for tmp_path/run, with the plugin registered as any third party's is."""
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(Hooks)
    plugins.register(command)
    plugins.check_pending()
    app = typer.Typer()
    app.callback()(lambda: None)
    plugins.hook.stagebench_commands(app=app)
    return lambda *options: CliRunner().invoke(app, ["report", str(tmp_path / "run"), *options])


@pytest.fixture
def run(run):
    run.proven(case_of())
    return run.folder.path


def test_writes_the_pages_or_a_single_file_of_all_and_names_it(report, run, tmp_path):
    result = report("-o", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    page = tmp_path / "out" / "index.html"
    assert result.output == f"Report: {page}\n"
    assert page.read_text().startswith("<!doctype html>")
    assert {"charts", "data", "speed.html", "case.html"} < {path.name for path in page.parent.iterdir()}
    result = report("--single", "-o", str(tmp_path / "single"))
    assert result.exit_code == 0, result.output
    assert [path.name for path in (tmp_path / "single").iterdir()] == ["index.html"]
    assert '<section id="stages">' in (tmp_path / "single" / "index.html").read_text()


def test_json_prints_rows_and_keeps_stdout_a_program_s(report, run, tmp_path):
    assert json.loads(report("--json").stdout)[0]["outcome"] == "ok"
    assert not (run / "report").exists()
    assert json.loads(report("--json", "-o", str(tmp_path / "out")).stdout)
    assert (tmp_path / "out" / "index.html").exists()


def test_what_is_no_run_is_refused(report):
    result = report()
    assert isinstance(result.exception, RequestError)
    assert "run.json" in str(result.exception)


def test_records_of_no_case_and_broken_ones_are_told_on_the_page_and_on_stderr(report, run):
    made = MadeRun(run)
    made.folder.write_record(next(made.folder.records()).but(case_id="0" * 12))
    result = report()
    assert result.exit_code == 0, result.output
    note = "1 record skipped, of no case of this plan: 000000000000-r0.json"
    assert note in result.stderr
    assert note in (run / "report" / "index.html").read_text()
    next(path for path in (run / "records").iterdir() if not path.name.startswith("0000")).write_text("{")
    result = report()
    assert result.exit_code == 0, result.output
    assert "1 record skipped, invalid: records/" in result.stderr
    assert "is not readable JSON" in (run / "report" / "index.html").read_text()


def test_the_command_costs_no_start_up_time():
    heavy = "import stagebench.reports.command, sys; "
    heavy += "print([m for m in ('numpy', 'markupsafe', 'jinja2') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "[]\n"
