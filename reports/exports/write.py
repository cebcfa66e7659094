"""A run for other tools: tables for spreadsheets, data frames and papers, JUnit for CI, a trace for its viewers."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from reports.exports.sheet import Cell, Sheet, schema, sheet
from reports.exports.trackers import TRACKERS, write_folder
from reports.pages.comm import bandwidths, panels_of, times
from reports.pages.run import Chart, Report
from reports.site.build import sections_of
from reports.site.frame import made
from suite.analysis.comparability import FOREIGN
from suite.analysis.links import links
from suite.analysis.summary import summarise
from suite.errors import RequestError
from suite.files import scratch, write_whole
from suite.results.run_folder import RunFolder
from suite.text import known, markdown_table
from suite.worker.homes import without_homes
from suite.worker.messages import Pass
from suite.worker.pass_kinds import STAGED

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCALE = 2  # pixels of a PNG for each of an SVG
LIMIT = 60  # seconds for a browser to draw one
FORMULA = re.compile(r"^[=+\-@\t\r]")  # what a spreadsheet would compute
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # terminal escapes; XML cannot hold them
LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "\u2212": "$-$",
    "…": r"\ldots{}",
    "\u202f": r"\,",
    "µ": r"$\mu$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",  # \textquotedbl is an error in LaTeX's usual encoding of fonts
    "\u2076": "$^6$",
}
SKIPPED = (FOREIGN, "unsupported", "unavailable", "not measured", "cancelled")


def as_csv(found: Sheet) -> str:
    """All columns; text that a spreadsheet would take for a formula begins with an apostrophe."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [column.name for column in found.columns])
    writer.writeheader()
    for line in found.lines:
        writer.writerow({name: _text(cell) for name, cell in line.items()})
    return stream.getvalue()


def _text(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def as_json(found: Sheet) -> str:
    """Return the table as a list of objects; the format `schema` describes them."""
    return json.dumps(found.lines, indent=1) + "\n"


def as_schema(found: Sheet) -> str:
    """Return what `json` holds, with the meaning of each column."""
    return json.dumps(schema(found.columns), indent=1) + "\n"


def as_parquet(found: Sheet) -> bytes:
    """Write the table with types; RequestError without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RequestError("Parquet needs pyarrow: pip install 'stagebench[parquet]'; or export csv") from None
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    form = pyarrow.schema([(column.name, types[column.type]) for column in found.columns])
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(found.lines), form), stream)
    return stream.getvalue()


def as_markdown(found: Sheet) -> str:
    """A table for an issue or a README."""
    head, *lines = found.paper
    return "\n".join(markdown_table(head, lines)) + f"\n\n{found.note}\n"


def as_latex(found: Sheet) -> str:
    """A `tabular` for a paper, with the rules of the package booktabs."""
    head, *lines = ([_latex(cell) for cell in line] for line in found.paper)
    body = [" & ".join(line) + r" \\" for line in lines]
    frame = [rf"\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}", r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
    note = rf"\multicolumn{{{len(head)}}}{{l}}{{\footnotesize {_latex(found.note)}}} \\"
    return "\n".join([*frame, *body, r"\bottomrule", note, r"\end{tabular}"]) + "\n"


def _latex(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in CONTROL.sub("", without_homes(text)).replace("\n", " "))


def as_junit(folder: RunFolder) -> str:
    """A test a case: failed where its outcome or its proof is, skipped where it could not run."""
    rows = summarise(folder)
    suite = ElementTree.Element("testsuite", name=_clean(folder.about.plan or "stagebench"), tests=str(len(rows)))
    counts = {"failure": 0, "skipped": 0}
    for row in rows:
        seconds = sum(process.wall for process in row.processes)
        name = f"{row.case.label} {row.id}"
        test = ElementTree.SubElement(
            suite, "testcase", name=_clean(name), classname=_clean(row.case.adapter), time=f"{seconds:.3f}"
        )
        failed = row.proof is not None and not row.proof.passed
        kind = "skipped" if row.outcome in SKIPPED else "failure" if row.outcome != "ok" or failed else ""
        if kind:
            counts[kind] += 1
            reason = row.proof.reason if row.outcome == "ok" and row.proof else f"{row.outcome}: {row.reason}"
            ElementTree.SubElement(test, kind, message=_clean(reason))
    suite.attrib |= {"failures": str(counts["failure"]), "skipped": str(counts["skipped"])}
    return ElementTree.tostring(suite, "unicode", xml_declaration=True) + "\n"


def _clean(text: str) -> str:
    return CONTROL.sub("\ufffd", without_homes(text))


def as_trace(folder: RunFolder) -> str:
    """The staged steps of every case's first process, for Perfetto or chrome://tracing; a process a rank.

    Ranks stand on one clock, rank 0's, whose error is at most `clock_error_s` of `otherData`, in seconds by case; null
    where a run recorded none: its ranks begin together there, as behind the barrier that they leave.
    """
    events: list[dict[str, Any]] = []
    errors: dict[str, float | None] = {}
    pids = count()
    for record in folder.records():
        staged = [rank.passes[STAGED] for rank in record.ranks if STAGED in rank.passes]
        if record.case_id in errors or not staged or len(staged) < len(record.ranks):
            continue
        spans = [each.span_s for each in staged if each.span_s]
        first = min((begin for begin, _ in spans), default=0.0)
        known = len(spans) == len(staged)
        error = errors[record.case_id] = max(each.clock_error_s or 0.0 for each in staged) if known else None
        exact = "clock not agreed" if error is None else f"clock within {error * 1e6:.1f} µs"
        for rank, each in enumerate(staged):
            named = {"process_name": {"name": f"{record.case.label}, rank {rank}"}, "process_labels": {"labels": exact}}
            pid = next(pids)
            events += [{"ph": "M", "name": name, "pid": pid, "args": args} for name, args in named.items()]
            events += _laid_out(each, pid, first)
    other = {"run": folder.about.id, "clock_error_s": errors}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}) + "\n"


ORDER = ("io", "h2d", "forward", "backward", "bubble", "skew", "communication", "update")


def _laid_out(staged: Pass, pid: int, first: float) -> Iterator[dict[str, Any]]:
    """A rank's stages as complete events in microseconds, one after the other without a gap, from its begin to its end.

    A pipeline's waiting, measured as a sum, stands behind the backward.
    """
    stages = [(name, times) for name in ORDER if (times := (staged.stage_s or {}).get(name))]
    total = sum(sum(times) for _, times in stages)
    begin, end = staged.span_s or (first, first + total)
    now, stretch = begin - first, (end - begin) / (total or 1.0)
    for step in range(len(staged.step_s)):
        for name, times in stages:
            lasts = times[step] * stretch
            event = {"ph": "X", "cat": "staged", "name": name, "pid": pid, "tid": 0, "args": {"step": step}}
            if lasts > 0:
                yield event | {"ts": now * 1e6, "dur": lasts * 1e6}
            now += lasts


def charts_of(folder: RunFolder) -> Iterator[tuple[str, Chart]]:
    """Yield every chart by the name of its file."""
    if folder.about.of_comm:
        measured = [link for link in links(folder) if link.singles and not link.network]
        for index, panel in enumerate(panels_of(measured)):
            yield f"links-{index}-time", times(panel)
            yield f"links-{index}-bandwidth", bandwidths(panel)
        return
    report = Report(folder, summarise(folder))
    sections_of(report)
    yield from report.charts.items()


def as_charts(folder: RunFolder, directory: Path) -> None:
    """Write NAME.svg of every chart, and NAME.png where there is a browser (STAGEBENCH_CHROMIUM may name one)."""
    browser = os.environ.get("STAGEBENCH_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    for name, chart in charts_of(folder):
        path = made(directory) / f"{name}.svg"
        write_whole(path, without_homes(chart.svg()))
        if browser:
            _photograph(browser, path)


def _photograph(browser: str, path: Path) -> None:
    """Write the PNG next to an SVG; a browser that cannot draw it leaves none."""
    width, height = (round(float(part)) for part in path.read_text().split('viewBox="0 0 ')[1].split('"')[0].split())
    with scratch() as place:
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()  # where a browser starts in no other way
        options = ("--headless=new", *root, "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={place}")
        drawn = (
            f"--force-device-scale-factor={SCALE}",
            f"--window-size={width},{height}",
            f"--screenshot={path.resolve().with_suffix('.png')}",
        )
        subprocess.run(
            [browser, *options, *drawn, path.resolve().as_uri()], timeout=LIMIT, check=False, capture_output=True
        )


TABLES: dict[str, tuple[str, Callable[[Sheet], str | bytes]]] = {
    "csv": ("results.csv", as_csv),
    "json": ("results.json", as_json),
    "schema": ("results.schema.json", as_schema),
    "parquet": ("results.parquet", as_parquet),
    "markdown": ("results.md", as_markdown),
    "latex": ("results.tex", as_latex),
}
DOCUMENTS: dict[str, tuple[str, Callable[[RunFolder], str]]] = {
    "junit": ("junit.xml", as_junit),
    "trace": ("trace.json", as_trace),
}
CHARTS = "charts"
FORMATS = (*TABLES, *DOCUMENTS, *TRACKERS, CHARTS)


def write(folder: RunFolder, format_: str, directory: Path) -> Path:
    """Write one format; RequestError for one that there is not, or that needs a library which is missing."""
    if format_ not in FORMATS:
        raise RequestError(f"there is no export format {format_!r}; {known(format_, FORMATS)}")
    content: str | bytes
    if format_ in TABLES:
        name, of_sheet = TABLES[format_]
        content = of_sheet(sheet(folder))
    elif format_ == CHARTS:
        return write_folder(as_charts, folder, directory / CHARTS)
    elif folder.about.of_comm:
        raise RequestError(f"a run of communication has no {format_}; export one of {', '.join((*TABLES, CHARTS))}")
    elif format_ in TRACKERS:
        return write_folder(TRACKERS[format_], folder, directory / format_)
    else:
        name, of_run = DOCUMENTS[format_]
        content = of_run(folder)
    path = made(directory) / name
    write_whole(path, content)
    return path
