"""A run's results in a terminal."""

import sys

import pytest

from stagebench.suite.analysis.summary import summarise
from stagebench.suite.cli import tell
from stagebench.suite.cli.output import show_rows
from stagebench.suite.cli.results import print_results
from stagebench.suite.errors import Refused, once_per_reason
from stagebench.suite.text import significant, without_codes
from tests.reports.made_experiments import inference
from tests.reports.made_run import MadeRun, case_of


@pytest.fixture
def run(tmp_path):
    made = MadeRun(tmp_path / "run")
    for adapter in ("pytorch", "caffempi"):
        made.proven(case_of(adapter))
        made.proven(case_of(adapter, tuning="default"), slower=1.5)
    return made.folder


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("columns", [80, 100, 200, None])
def test_a_terminal_and_a_pipe_say_who_leads_with_whole_numbers(run, monkeypatch, capsys, columns, full):
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_results(run, full)
    lines = without_codes(capsys.readouterr().out).splitlines()
    assert lines[0] == "PyTorch leads in 2 of 2 comparisons", "the title of the report"
    assert max(map(len, lines)) <= (columns or 120)
    (told,) = [line for line in lines if "4 of 4 cases proven" in line]
    assert told.count("quick") == 1
    assert sum("marked quick" in line for line in lines) == 1, "what all rows share"
    rows = [line for line in lines if line.startswith(("PyTorch  ", "Caffe-MPI style  "))]
    assert [line.count("●") for line in rows] == [1, 0] * 2
    for row, line in zip(
        sorted(summarise(run), key=lambda row: (row.case.tuning != "tuned", -row.speed)), rows, strict=True
    ):
        assert f" {significant(row.speed)} " in line
        assert f"{100 * row.against.ratio.value:.0f} %" in line
        assert (f"{significant(row.rate.low)} … {significant(row.rate.high)}" in line) is full
        assert ("─" in line) is (not full and row.against.ratio.scatters)


def test_the_marks_and_speeds_of_rows_that_are_not_compared_are_said(tmp_path, capsys):
    made = MadeRun(tmp_path / "run")
    made.add(case_of())
    made.proven(case_of(ranks=2))
    print_results(made.folder)
    printed = capsys.readouterr().out
    assert " samples/s (" in printed.splitlines()[0] or printed.startswith("PyTorch ddp does ")
    assert "no proof" in printed


def test_an_offline_speed_is_not_said_to_be_a_model_server_s(tmp_path, capsys):
    print_results(inference(tmp_path / "run"))
    *_, title, row, _ = without_codes(capsys.readouterr().out).splitlines()
    assert title.endswith("samples/s in process")
    assert "up to at least 200 queries/s" in row


def test_what_a_terminal_is_told_is_broken_between_words(run, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    print_results(run)
    told = capsys.readouterr().out
    remark = told[told.index("too few processes") :]
    assert "\n" in remark.strip()
    assert max(map(len, remark.splitlines())) <= 60
    tell("the case-of-hyphens is nowhere; " * 3)
    lines = without_codes(capsys.readouterr().err).splitlines()
    assert {line.split()[-1] for line in lines} <= {"the", "case-of-hyphens", "is", "nowhere;"}


def test_numbers_are_aligned_and_headers_break_between_words(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_rows([{"case": "a", "speed": "1.50"}, {"case": "b", "speed": "1,200"}, {"case": "c"}], ["case", "speed"])
    ends = {line.rindex("0") for line in capsys.readouterr().out.splitlines() if "0" in line.partition("case")[0]}
    assert len(ends) == 1
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    row = {"case": "pytorch single mnist_small batch 64", "samples/s": "12,345", "95 % interval": "11,900 to 12,800"}
    row |= {"processes needed": "17", "efficiency of scaling": "97.3%", "exposed ms": "13.4"}
    show_rows([row], list(row))
    printed = without_codes(capsys.readouterr().out).split()
    assert {"processes", "needed", "efficiency", "scaling", "exposed"} <= set(printed)


@pytest.mark.parametrize("columns", [200, 80, 60, 30])
def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    row = {"ranks": 64, "schedule": "sequential", "samples/s": "123,456", "95 % interval": "120,000 to 130,000"}
    row |= {"efficiency": "98.7%", "exposed ms": "1,234", "measured": "123,999", "error": "+12.5%"}
    show_rows([row, row], list(row))
    printed = capsys.readouterr().out
    assert all(printed.count(str(value)) == 2 for name, value in row.items() if name != "95 % interval")
    assert printed.count("130,000") == 2


def test_what_several_cases_share_is_said_once(tmp_path, capsys):
    made = MadeRun(tmp_path / "run")
    for adapter in ("pytorch", "caffempi"):
        made.proven(case_of(adapter), repeats=1)
    print_results(made.folder)
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("resume the run, or measure more processes") == 1
    refused = [Refused(f"{name}/ddp", name, "not measured", "the run stopped") for name in ("pytorch", "caffempi")]
    (shared,) = once_per_reason(refused)
    assert (shared.label, shared.reason, shared.cases) == ("pytorch, caffempi (2 cases)", "the run stopped", 2)
    assert once_per_reason(refused[:1]) == refused[:1]


def test_an_interval_that_says_nothing_is_no_pair_of_numbers(tmp_path, capsys):
    made = MadeRun(tmp_path / "run")
    noisy = made.proven(case_of(), repeats=2)

    def slow(record):
        native = record["ranks"][0]["passes"]["native"]
        native.update(wall_s=500.0, step_s=[500.0 / len(native["step_s"])] * len(native["step_s"]))

    made.changed(noisy, slow, [1])
    made.proven(case_of("caffempi"))
    print_results(made.folder, full=True)
    noisy_line, other = sorted(line for line in capsys.readouterr().out.splitlines() if line.endswith(" ok"))[::-1]
    assert "not determined" in noisy_line
    assert " … " in other


@pytest.mark.parametrize("terminal", [True, False])
def test_escape_codes_of_a_run_folder_reach_no_terminal(tmp_path, monkeypatch, capsys, terminal):
    made = MadeRun(tmp_path / "run")
    made.proven(case_of(data="/data/\x1b]0;title\x07photographs"))
    made.refuse(case_of(ranks=2), "unavailable", "\x1b[2Jinstall it")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    print_results(made.folder)
    printed = capsys.readouterr().out
    assert "photographs" in printed
    assert "unavailable: pytorch/ddp alexnet 2 ranks batch 8 imagenet-like: install it" in printed
    assert not any(code in printed for code in ("\x1b]", "\x1b[2J", "\x07"))
