"""What other people call their files, layers and machines reaches a terminal without codes, and a shell as one word."""

import io
import json
import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from stagebench.reports.command import import_
from stagebench.suite.analysis.compare_runs import compare
from stagebench.suite.analysis.runs import MeasuredRun
from stagebench.suite.cli import app, data, measuring
from stagebench.suite.cli.display import Display
from stagebench.suite.errors import RequestError
from stagebench.suite.text import command_line
from stagebench.suite.worker import messages
from tests.reports.made_comm import collective
from tests.reports.made_run import MadeRun, case_of
from tests.suite.test_display import ONE, entry, proof, record

CODES = "\x1b]0;title\x07\x1b[2J\u202e"
NAME = f"{CODES}name"
OF_RICH = re.compile(r"\x1b\[(\?25[lh]|1A|2K)|\r")  # hides the cursor, goes up, clears a line
FOLDERS = ("runs; id", "$(id)", "`id`", 'it\'s "quoted"', "a\nb", "-o", "größe")


def clean(text: str) -> None:
    assert "name" in text
    assert not [code for code in "\x1b\x07\u202e" if code in text]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_word_stays_one_word_of_a_shell_and_a_path_is_no_option(name):
    first, word, path = shlex.split(command_line("ls", name, Path(name)))
    assert (first, word, Path(path)) == ("ls", name, Path(name))
    assert not path.startswith("-")


@pytest.mark.parametrize("name", FOLDERS)
def test_the_next_command_names_the_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    MadeRun(Path("run")).proven(case_of())
    foreign = Path(__file__).parents[1] / "fixtures" / "foreign" / "all_reduce_perf.txt"
    for print_it in (
        lambda folder: measuring.conclude(folder, Counter(ok=1), quiet=False),
        lambda folder: app.collect([Path("run")], folder / "collected"),
        lambda folder: import_([foreign], folder / "imported", None),
    ):
        print_it(Path(name))
        command, report, run, option, pages = shlex.split(capsys.readouterr().out.partition("Next: ")[2])
        assert (command, report, option, Path(pages)) == ("stagebench", "report", "-o", Path(run) / "report")
        assert Path(run).is_relative_to(name)
        assert not run.startswith("-")


def test_commands_that_a_message_names_quote_their_folders(tmp_path, capsys):
    place = tmp_path / "mine; id"
    app.new_adapter("lumen", place)
    assert f"  cd '{place}/stagebench-lumen'\n" in capsys.readouterr().out
    for name in ("a", "b"):
        MadeRun(place / name).refuse(case_of(), "unavailable", "no such framework")
    with pytest.raises(RequestError, match=re.escape(f"`stagebench show '{place}/a'` says why")):
        compare(MeasuredRun.read(place / "a"), MeasuredRun.read(place / "b"), 0.03)


def test_what_data_commands_print_is_a_value_of_a_plan_and_has_no_codes(capsys):
    path = Path('/data/a "set"\\ of\nmine')
    data._say_how_to_use(path, path)
    assert tomllib.loads(capsys.readouterr().out.removeprefix("in a plan: ")) == {"data": str(path)}
    left = SimpleNamespace(samples=1, which=[f"{NAME}.jpg: not an image"])
    marker: Any = SimpleNamespace(samples=1, skipped=left, parts=[1], adapter=NAME)
    data._show_packed(Path(f"/data/{NAME}"), marker)
    clean(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words", [("show", "r\udce9"), ("run", "quick", "-o", "r\udce9"), ("data", "check", "r\udce9")]
)
def test_a_name_that_is_no_text_is_refused_with_the_codes_of_its_bytes(stagebench, words):
    assert "'r\\xe9'" in str(stagebench(*words).error)


def test_files_and_layers_are_printed_without_codes(stagebench, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        Image.linear_gradient("L").save(tmp_path / folder / "good.png")
    (tmp_path / "a" / f"{NAME}.jpg").write_text("no")
    told = stagebench("data", "check", str(tmp_path))
    assert (told.code, "name.jpg: not an image" in told.out) == (1, True)
    clean(told.out)
    layer = {"layer": NAME, "kind": "dense", "forward_s": 0.01, "backward_s": 0.03, "bytes": 4_000_000}
    (tmp_path / "layers.json").write_text(json.dumps([layer]))
    options = ("--set", f"layers={tmp_path}/layers.json", "--batch", "8", "--alpha", "1e-3", "--beta", "1e-9")
    told = stagebench("predict", *options)
    assert "critical path on 32 ranks" in told.out
    clean(told.out)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(
    "case", [ONE.on(data=f"/data/{NAME}"), collective(NAME, "broadcast")], ids=["training", "comm"]
)
def test_a_session_is_shown_without_codes(live, case):
    stream = io.StringIO()
    console = Console(file=stream, width=300, force_terminal=live, color_system=None)
    display = Display(console)
    display.begin([entry(case, "unavailable", f"a {NAME}"), entry(case)], 1, 0)
    display.proved(case, proof("k2", False, f"the {NAME}"))
    display.started(case, 0)
    display.message(case, 0, messages.Phase(NAME))
    with console.capture() as view:
        console.print(display.view())
    clean(OF_RICH.sub("", view.get()))
    display.finished(case, record(case, "crash", reason=f"no {NAME}", ranks=[], proof=None))
    display.end()
    text = OF_RICH.sub("", stream.getvalue()) if live else stream.getvalue()
    clean(text)
    assert text.count("name") >= 6
