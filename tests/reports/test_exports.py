"""What other tools are given can be read by them, and says what the run says."""

import csv
import io
import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from stagebench.reports.exports.sheet import Column, Sheet, as_csv
from stagebench.reports.exports.write import write
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.errors import RequestError
from stagebench.suite.results.run_folder import RunFolder
from tests.reports.made_run import MadeRun, case_of, everything


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return everything(tmp_path_factory.mktemp("exports") / "run")


def rates(folder: RunFolder) -> dict[str, float | None]:
    return {row.id: row.rate.value if row.rate else None for row in summarise(folder)}


def test_csv_and_json_hold_every_case_with_plain_numbers(folder: RunFolder, tmp_path: Path) -> None:
    with write(folder, "csv", tmp_path).open() as stream:
        read = {line["id"]: line["samples_per_second"] for line in csv.DictReader(stream)}
    assert {id_: float(rate) if rate else None for id_, rate in read.items()} == rates(folder)
    lines = json.loads(write(folder, "json", tmp_path).read_text())
    assert {line["id"]: line["samples_per_second"] for line in lines} == rates(folder)


def test_json_is_what_its_published_schema_says(folder: RunFolder, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    lines, described = (write(folder, name, tmp_path).read_text() for name in ("json", "schema"))
    schema = json.loads(described)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(lines), schema)
    assert set(schema["items"]["required"]) == set(schema["items"]["properties"])
    published = Path(__file__).parents[2] / "docs" / "export.schema.json"
    assert published.read_text() == described, "stagebench export RUN schema -o docs"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t"])
def test_cells_of_csv_cannot_be_formulas(run: MadeRun, tmp_path: Path, begin: str) -> None:
    run.proven(case_of(data=f"{begin}1+1"))
    with write(run.folder, "csv", tmp_path).open(newline="") as stream:
        (line,) = csv.DictReader(stream)
    assert line["data"] == f"'{begin}1+1"
    column = Column("word", lambda line: line, "")  # no run folder brings a line's end: what is read has lost it
    (line,) = csv.DictReader(io.StringIO(as_csv(Sheet([column], [{"word": "\r=1+1"}], [], "")), newline=""))
    assert line["word"] == "'\r=1+1"


def test_parquet_is_read_with_its_types(folder: RunFolder, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    path = write(folder, "parquet", tmp_path)
    found = duckdb.sql(f"select id, samples_per_second, devices, comparable from '{path}'").fetchall()
    assert {id_: rate for id_, rate, _, _ in found} == rates(folder)
    assert {(type(devices), type(comparable)) for _, _, devices, comparable in found} == {(int, bool)}
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    read = pandas.read_parquet(path).set_index("id")["samples_per_second"].dropna()
    assert read.to_dict() == {id_: rate for id_, rate in rates(folder).items() if rate}


def test_junit_and_tables_for_papers_count_every_case(folder: RunFolder, tmp_path: Path) -> None:
    suite = ElementTree.parse(write(folder, "junit", tmp_path)).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("22", "2", "2")
    said = [failure.get("message") for failure in suite.iter("failure")]
    assert "crash: rank 0 ended with signal 9 in the native pass" in said
    assert "gradient of conv1.weight is off by 0.04 (allowed 1e-05)" in said
    measured = sum(rate is not None for rate in rates(folder).values())
    markdown = write(folder, "markdown", tmp_path).read_text().splitlines()
    assert sum(line.startswith("| ") for line in markdown) == measured + 2
    assert len({line.count(" | ") for line in markdown if line.startswith("| ")}) == 1
    latex = write(folder, "latex", tmp_path).read_text()
    assert latex.count(r" \\") == measured + 2  # the head, and what the star means
    assert re.search(r"\\bottomrule\n\\multicolumn\{\d+\}\{l\}\{\\footnotesize .+\} \\\\\n\\end\{tabular\}\n$", latex)
    assert r"mnist\_small" in latex


def test_what_a_plan_brings_is_text_in_every_format(run: MadeRun, tmp_path: Path) -> None:
    bad = r"a|b <i>\input{x} & \x1b[31m"
    run.proven(case_of(knobs={"note": bad}))
    run.proven(case_of(knobs={"note": "\x1b[31mred\x00"}))
    run.refuse(case_of("caffempi"), "unavailable", f"\x1b[31m{bad}")
    assert "\\|b \\<i\\>" in write(run.folder, "markdown", tmp_path).read_text()
    latex = write(run.folder, "latex", tmp_path).read_text()
    assert r"a\textbar{}b \textless{}i\textgreater{}\textbackslash{}input\{x\} \&" in latex
    for name in ("csv", "json", "schema", "markdown", "latex", "junit", "trace"):
        assert "\x1b" not in write(run.folder, name, tmp_path).read_text(), name
    assert json.loads((tmp_path / "results.json").read_text())[-1]["reason"] == bad
    with (tmp_path / "results.csv").open(newline="") as stream:
        assert [line["reason"] for line in csv.DictReader(stream)][-1] == bad
    ElementTree.parse(tmp_path / "junit.xml")
    with pytest.raises(RequestError, match=r"'exel'.*csv"):
        write(run.folder, "exel", tmp_path)


def test_a_trace_has_a_process_a_rank_on_one_clock(run: MadeRun, tmp_path: Path) -> None:
    cases = [run.proven(case_of(ranks=2)), run.proven(case_of(workload="resnet50", ranks=2))]
    agreed, unknown = sorted(cases, key=lambda case: case.id)  # the order of records
    begins, seconds = (100.5, 100.002), []

    def stand(record: dict[str, Any]) -> None:
        for rank, begin in zip(record["ranks"], begins, strict=True):
            staged = rank["passes"]["staged"]
            seconds.append(sum(map(sum, staged["stage_s"].values())))
            # The second rank's marks are of another clock, which loses a fiftieth of the time.
            half = seconds[-1] / 2 * (1 + 0.02 * rank["rank"])
            # Native steps had their turns between the two blocks.
            spans = [[begin, begin + half], [begin + 100.0, begin + 100.0 + half]]
            staged |= {"spans_s": spans, "clock_error_s": 3e-6}

    run.changed(agreed, stand, [0])
    trace = json.loads(write(run.folder, "trace", tmp_path).read_text())
    assert trace["otherData"]["clock_error_s"] == {agreed.id: 3e-6, unknown.id: None}
    events = trace["traceEvents"]
    # The Trace Event Format: complete events in microseconds, each of a process that is named.
    for event in events:
        assert {"ph", "name", "pid", "args"} <= set(event)
        assert event["ph"] == "M" or (event["ts"] >= 0 and event["dur"] > 0 and {"tid", "cat"} <= set(event))
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    labels = [event["args"]["labels"] for event in events if event["name"] == "process_labels"]
    assert labels == ["clock within 3.0 µs"] * 2 + ["clock not agreed"] * 2
    spans = {}
    for pid, name in named.items():
        own = sorted((event["ts"], event["dur"]) for event in events if event["pid"] == pid and event["ph"] == "X")
        gaps = [after - ts - dur for (ts, dur), (after, _) in pairwise(own)]
        spans[name] = (own[0][0] / 1e6, sum(own[-1]) / 1e6, [gap / 1e6 for gap in gaps if abs(gap) > 0.01])
    assert [name[-6:] for name in spans] == ["rank 0", "rank 1"] * 2
    first, second, *others = spans.values()
    assert first[:2] == pytest.approx((0.498, 100.498 + seconds[0] / 2))
    assert second[:2] == pytest.approx((0.0, 100.0 + 1.02 * seconds[1] / 2))
    assert first[2] == pytest.approx([100.0 - seconds[0] / 2])
    assert [(begin, gaps) for begin, _, gaps in others] == [(0.0, [])] * 2  # behind the barrier that they left together


PAPER = r"""\documentclass{article}
\usepackage{booktabs}
\begin{document}
\input{results.tex}
\end{document}
"""


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex on the path (Debian: texlive-latex-base)")
def test_a_paper_s_table_is_set_by_latex_whatever_its_words(run: MadeRun, tmp_path: Path) -> None:
    run.proven(case_of(ranks=2))
    run.proven(case_of(knobs={"note": "".join(map(chr, range(32, 127))) + "é × · − … µ"}))  # noqa: RUF001
    write(run.folder, "latex", tmp_path)
    (tmp_path / "paper.tex").write_text(PAPER)
    tokens = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(tokens, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF")


def test_a_paper_s_table_has_no_column_that_nothing_fills(run: MadeRun, tmp_path: Path) -> None:
    run.proven(case_of(data="synthetic", passes=("native",)))
    head = next(line for line in write(run.folder, "latex", tmp_path).read_text().splitlines() if "case &" in line)
    assert head == r"case & network & samples/s & 95 \% interval & ms per iteration \\"
    run.proven(case_of(ranks=2))
    latex = write(run.folder, "latex", tmp_path).read_text()
    assert "& forward & backward &" in latex
    assert latex.count("begin{tabular}{ll" + "r" * (latex.split("\\midrule")[0].count(" & ") - 1) + "}") == 1


@pytest.mark.filterwarnings("ignore")  # its own
def test_perfetto_s_trace_processor_finds_every_stage(run: MadeRun, tmp_path: Path) -> None:
    processor = pytest.importorskip("perfetto.trace_processor", reason="perfetto is not installed")
    run.proven(case_of(ranks=2))
    path = write(run.folder, "trace", tmp_path)
    written = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    try:
        reader = processor.TraceProcessor(trace=str(path))
    except Exception as error:  # it fetches a program, and raises whatever that does
        pytest.skip(f"Perfetto's trace processor cannot be had here: {error}")
    with reader:
        read = [(one.name, one.dur) for one in reader.query("select name, dur from slice order by ts, dur")]
        assert {one.name for one in reader.query("select name from process where name is not null")} == {
            f"{case_of(ranks=2).label}, rank {rank}" for rank in range(2)
        }
    assert sorted(name for name, _ in read) == sorted(event["name"] for event in written)
    assert sum(lasts for _, lasts in read) == pytest.approx(1e3 * sum(event["dur"] for event in written), rel=1e-6)
