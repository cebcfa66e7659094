"""A run for other tools: tables, JUnit for CI, a trace for its viewers, what experiment trackers read, and charts."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count, starmap
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from stagebench.reports.exports import sheet as tables
from stagebench.reports.exports.loadgen import as_loadgen
from stagebench.reports.exports.sheet import CONTROL, Sheet, table
from stagebench.reports.pages.comm import bandwidths, panels_of, times
from stagebench.reports.pages.run import Chart, Report
from stagebench.reports.site.build import made, sections_of
from stagebench.suite.analysis.comparability import FOREIGN
from stagebench.suite.analysis.links import links
from stagebench.suite.analysis.measured import process_of
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.errors import RequestError
from stagebench.suite.files import file_name, scratch, write_whole
from stagebench.suite.results.records import Record
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.text import installing, known
from stagebench.suite.worker.homes import without_homes
from stagebench.suite.worker.messages import Pass
from stagebench.suite.worker.pass_kinds import STAGED, TRAIN

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCALE = 2  # pixels of a PNG for each of an SVG
LIMIT = 60  # seconds for a browser to draw one
SKIPPED = (FOREIGN, "unsupported", "unavailable", "not measured", "cancelled")
ORDER = ("io", "h2d", "forward", "backward", "bubble", "skew", "communication", "update")  # of a trace's stages
BENCHMARKS = {"resnet50": "resnet"}  # by MLPerf's names
Scalars = dict[str, list[tuple[int, float]]]  # by name: (step, value)


def as_junit(folder: RunFolder) -> str:
    """Write a test a case: failed where its outcome or its proof is, skipped where it could not run."""
    rows, counts = summarise(folder), {"failure": 0, "skipped": 0}
    suite = ElementTree.Element("testsuite", name=_clean(folder.about.plan or "stagebench"), tests=str(len(rows)))
    for row in rows:
        name, seconds = f"{row.case.label} {row.id}", sum(process.wall for process in row.processes)
        about = {"name": _clean(name), "classname": _clean(row.case.adapter), "time": f"{seconds:.3f}"}
        test = ElementTree.SubElement(suite, "testcase", about)
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
    """Write the staged steps of every case's first process, for Perfetto or chrome://tracing; a process a rank.

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
        begins = [each.spans_s[0][0] for each in staged if each.spans_s]
        first = min(begins, default=0.0)
        agreed = len(begins) == len(staged)
        error = errors[record.case_id] = max(each.clock_error_s or 0.0 for each in staged) if agreed else None
        exact = "clock not agreed" if error is None else f"clock within {error * 1e6:.1f} µs"
        for rank, each in enumerate(staged):
            named = {"process_name": {"name": f"{record.case.label}, rank {rank}"}, "process_labels": {"labels": exact}}
            pid = next(pids)
            events += [{"ph": "M", "name": name, "pid": pid, "args": args} for name, args in named.items()]
            events += _laid_out(each, pid, first)
    other = {"run": folder.about.id, "clock_error_s": errors}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}) + "\n"


def _laid_out(staged: Pass, pid: int, first: float) -> Iterator[dict[str, Any]]:
    """Yield a rank's stages as complete events in µs, one after the other without a gap in each block of steps.

    A pipeline's waiting, measured as a sum, stands behind the backward.
    """
    stages = [(name, times) for name in ORDER if (times := (staged.stage_s or {}).get(name))]
    seconds = [sum(times[step] for _, times in stages) for step in range(len(staged.step_s))]
    spans = staged.spans_s or [(first, first + sum(seconds))]
    size = len(seconds) // len(spans)
    for block, (begin, end) in enumerate(spans):
        steps = range(block * size, (block + 1) * size)
        now, stretch = begin - first, (end - begin) / (sum(seconds[step] for step in steps) or 1.0)
        for step in steps:
            for name, times in stages:
                lasts = times[step] * stretch
                event = {"ph": "X", "cat": "staged", "name": name, "pid": pid, "tid": 0, "args": {"step": step}}
                if lasts > 0:
                    yield event | {"ts": now * 1e6, "dur": lasts * 1e6}
                now += lasts


def as_tensorboard(folder: RunFolder, directory: Path) -> None:
    """Write a TensorBoard run a process; RequestError without the package."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise _missing("TensorBoard", "tensorboard") from None
    began = _seconds(folder.about.created)
    for row in summarise(folder):
        for repeat, scalars in _curves(row):
            name = f"{file_name(row.case.adapter, row.case.strategy)}-{row.id}-r{repeat}"
            writer = EventFileWriter(str(made(directory / name)))
            for tag, points in scalars.items():
                for step, value in points:
                    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                    writer.add_event(Event(wall_time=began, step=step, summary=summary))
            writer.close()


def as_mlflow(folder: RunFolder, directory: Path) -> None:
    """Write an MLflow run a case: words of the table are parameters, numbers metrics; RequestError without MLflow."""
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag
    except ImportError:
        raise _missing("MLflow", "mlflow") from None
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # without it newer versions refuse folders
    client = MlflowClient(directory.absolute().as_uri())
    began = round(_seconds(folder.about.created) * 1000)
    experiment = client.create_experiment(without_homes(folder.about.plan) or "stagebench")
    rows = summarise(folder)
    for row, line in zip(rows, table(folder, rows), strict=True):
        run = client.create_run(experiment, began, run_name=row.case.label).info.run_id
        metrics, words = [], []
        for name, cell in line.items():
            if isinstance(cell, str | bool):
                words.append(Param(name, str(cell)[:500]))
            elif cell is not None:
                metrics.append(Metric(name, float(cell), began, 0))
        for repeat, scalars in _curves(row):
            found = [(tag, *point) for tag, points in scalars.items() for point in points]
            metrics += [Metric(f"{tag}/r{repeat}", value, began, step) for tag, step, value in found]
        for first in range(0, len(metrics), 1000):  # as many as one call takes
            client.log_batch(run, metrics[first : first + 1000])
        client.log_batch(run, params=words, tags=[RunTag("stagebench.marks", ", ".join(row.marks))])
        client.set_terminated(run, "FINISHED" if row.outcome == "ok" else "FAILED", began)


def _curves(row: Row) -> Iterator[tuple[int, Scalars]]:
    """Yield the number of each process of a case, and what it measured step by step or epoch by epoch."""
    for process in row.processes:
        found: Scalars = {"native/step_seconds": list(enumerate(process.step_seconds.tolist(), 1))}
        if process.rate:
            found["native/samples_per_second"] = [(0, process.rate)]
        if lesson := process.learnt:
            losses = zip(lesson.steps, lesson.losses, strict=True)
            found["train/loss"] = [(at, loss) for at, loss in losses if loss is not None]
            found["train/accuracy"] = [(at, epoch.accuracy) for at, epoch in enumerate(lesson.epochs, 1)]
            found["train/epoch_seconds"] = [(at, epoch.seconds) for at, epoch in enumerate(lesson.epochs, 1)]
        yield process.repeat, found


def _missing(what: str, package: str) -> RequestError:
    return RequestError(f"{what} needs its package: {installing(f'stagebench[{package}]')}; or export csv")


def _seconds(moment: str) -> float:
    """Seconds since the epoch; now, for runs that have no moment."""
    return datetime.fromisoformat(moment).timestamp() if moment else time.time()


def as_mlperf(folder: RunFolder, directory: Path) -> None:
    """Write MLPerf's log lines, a file a training process, of cases that train to an accuracy; others have no log."""
    logs = [
        (f"{file_name(case.adapter, case.strategy)}-{record.case_id}-r{record.repeat}.log", _mllog(record))
        for record in folder.records()
        if (case := record.case).passes == (TRAIN,) and record.result == "ok"
    ]
    if not logs:
        raise RequestError(
            f"{folder.path} has no case that trains to an accuracy, which is what MLPerf logs; run the plan `learning`"
        )
    for name, lines in logs:
        write_whole(made(directory) / name, "".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))


def _mllog(record: Record) -> Iterator[dict[str, Any]]:
    """Yield the lines of one training, on the clock of its epochs: testing, which MLPerf counts too, takes no time.

    In the open division, as research. MLPerf's checker accepts them where MLPerf has the benchmark: resnet50.
    """
    case, process = record.case, process_of(record, record.method)
    lesson = process.learnt
    if lesson is None:
        return
    now = _seconds(record.started) * 1000

    def line(key: str, value: Any = None, kind: str = "POINT_IN_TIME", **metadata: Any) -> dict[str, Any]:
        where = {"file": "stagebench", "lineno": 0, **metadata}
        event = {"namespace": "", "time_ms": round(now), "event_type": kind, "key": key, "value": value}
        return {**event, "metadata": where}

    submission = {
        "submission_benchmark": BENCHMARKS.get(case.workload, case.workload),
        "submission_division": "open",
        "submission_org": "stagebench",
        "submission_platform": ", ".join(process.about.hosts) or "unknown",
        "submission_status": "research",
        "cache_clear": case.input.page_cache == "cold",
    }
    settings = {
        "global_batch_size": case.global_batch,
        "seed": case.seed,
        "opt_name": case.optimiser,
        "opt_base_learning_rate": case.lr,
        "train_samples": lesson.epochs[0].samples,
        "eval_samples": None,  # a share of the data set, whose size no record keeps
    }
    yield from starmap(line, submission.items())
    yield line("init_start", kind="INTERVAL_START")
    yield from starmap(line, settings.items())
    yield line("init_stop", kind="INTERVAL_END")
    yield line("run_start", kind="INTERVAL_START")
    for number, epoch in enumerate(lesson.epochs, 1):
        yield line("epoch_start", kind="INTERVAL_START", epoch_num=number)
        now += epoch.seconds * 1000
        yield line("epoch_stop", kind="INTERVAL_END", epoch_num=number)
        yield line("eval_start", kind="INTERVAL_START", epoch_num=number)
        yield line("eval_accuracy", epoch.accuracy, epoch_num=number)
        yield line("eval_stop", kind="INTERVAL_END", epoch_num=number)
        if lesson.target_epoch == number:
            break
    status = "success" if lesson.target_epoch else "aborted"
    yield line("run_stop", kind="INTERVAL_END", status=status)


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


def browser() -> str | None:
    """Return the program that draws a chart's PNG; None if there is none."""
    return os.environ.get("STAGEBENCH_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)


def as_charts(folder: RunFolder, directory: Path) -> None:
    """Write NAME.svg of every chart, and NAME.png where there is a browser (STAGEBENCH_CHROMIUM may name one)."""
    program = browser()
    for name, chart in charts_of(folder):
        path, text = (made(directory) / f"{name}.svg").resolve(), without_homes(chart.svg())
        write_whole(path, text)
        if program is None:
            continue
        width, height = (round(float(part)) for part in text.split('viewBox="0 0 ')[1].split('"')[0].split())
        with scratch() as place:
            root = ["--no-sandbox"] if os.geteuid() == 0 else []  # where a browser starts in no other way
            options = ["--headless=new", *root, "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={place}"]
            options += [f"--force-device-scale-factor={SCALE}", f"--window-size={width},{height}"]
            command = [program, *options, f"--screenshot={path.with_suffix('.png')}", path.as_uri()]
            # A browser that cannot draw it leaves none.
            subprocess.run(command, timeout=LIMIT, check=False, capture_output=True)


TABLES: dict[str, tuple[str, Callable[[Sheet], str | bytes]]] = {
    "csv": ("results.csv", tables.as_csv),
    "json": ("results.json", tables.as_json),
    "schema": ("results.schema.json", tables.as_schema),
    "parquet": ("results.parquet", tables.as_parquet),
    "markdown": ("results.md", tables.as_markdown),
    "latex": ("results.tex", tables.as_latex),
}
DOCUMENTS: dict[str, tuple[str, Callable[[RunFolder], str]]] = {
    "junit": ("junit.xml", as_junit),
    "trace": ("trace.json", as_trace),
}
CHARTS = "charts"
FOLDERS: dict[str, Callable[[RunFolder, Path], None]] = {
    "tensorboard": as_tensorboard,
    "mlflow": as_mlflow,
    "mlperf": as_mlperf,
    "loadgen": as_loadgen,
    CHARTS: as_charts,
}
FORMATS = (*TABLES, *DOCUMENTS, *FOLDERS)


def write(folder: RunFolder, format_: str, directory: Path) -> Path:
    """Write one format; RequestError for an unknown one, or if the library that it needs is missing.

    A folder of files has a place of its own, since trackers would add to what is there.
    """
    if format_ not in FORMATS:
        raise RequestError(f"there is no export format {format_!r}; {known(format_, FORMATS)}")
    if folder.about.of_comm and format_ not in (*TABLES, CHARTS):
        raise RequestError(f"a run of communication has no {format_}; export one of {', '.join((*TABLES, CHARTS))}")
    if format_ in FOLDERS:
        path = directory / format_
        if path.exists():
            raise RequestError(f"{path} is there already, and would be added to; name another folder with -o")
        FOLDERS[format_](folder, path)
        return path
    content: str | bytes
    if format_ in TABLES:
        name, as_table = TABLES[format_]
        content = as_table(tables.sheet(folder))
    else:
        name, as_document = DOCUMENTS[format_]
        content = as_document(folder)
    write_whole(made(directory) / name, content)
    return directory / name
