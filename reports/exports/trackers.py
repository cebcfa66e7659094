"""A run as a folder for other tools: TensorBoard's event files, a folder that MLflow tracks in, MLPerf's log lines."""

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from reports.exports.sheet import Cell, table
from reports.site.frame import made
from suite.analysis.measured import process_of
from suite.analysis.rows import Row
from suite.analysis.summary import summarise
from suite.errors import RequestError
from suite.files import file_name, write_whole
from suite.results.records import Record
from suite.results.run_folder import RunFolder
from suite.worker.homes import without_homes
from suite.worker.pass_kinds import TRAIN

BENCHMARKS = {"resnet50": "resnet"}  # by MLPerf's names
Run = TypeVar("Run")  # a run folder, of trainings or of communication
Scalars = dict[str, list[tuple[int, float]]]  # by name: (step, value)


def curves(row: Row) -> Iterator[tuple[str, Scalars]]:
    """Return the name of each process of a case, and what it measured step by step or epoch by epoch."""
    for process in row.processes:
        found: Scalars = {"native/step_seconds": list(enumerate(process.step_seconds.tolist(), 1))}
        if process.rate:
            found["native/samples_per_second"] = [(0, process.rate)]
        if process.learnt:
            lesson = process.learnt
            found["train/loss"] = [
                (at, loss) for at, loss in zip(lesson.steps, lesson.losses, strict=True) if loss is not None
            ]
            found["train/accuracy"] = [(at, epoch.accuracy) for at, epoch in enumerate(lesson.epochs, 1)]
            found["train/epoch_seconds"] = [(at, epoch.seconds) for at, epoch in enumerate(lesson.epochs, 1)]
        yield f"{file_name(row.case.adapter, row.case.strategy)}-{row.id}-r{process.repeat}", found


def as_tensorboard(folder: RunFolder, directory: Path) -> None:
    """A TensorBoard run a process; RequestError without the package."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise _missing("TensorBoard", "tensorboard") from None
    began = _seconds(folder.about.created)
    for row in summarise(folder):
        for name, scalars in curves(row):
            writer = EventFileWriter(str(made(directory / name)))
            for tag, points in scalars.items():
                for step, value in points:
                    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                    writer.add_event(Event(wall_time=began, step=step, summary=summary))
            writer.close()


def as_mlflow(folder: RunFolder, directory: Path) -> None:
    """An MLflow run a case: words of the table as parameters, its numbers as metrics; RequestError without MLflow."""
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
        metrics = [Metric(name, float(value), began, 0) for name, value in line.items() if _number(value)]
        words = [Param(name, str(value)[:500]) for name, value in line.items() if not (value is None or _number(value))]
        for name, scalars in curves(row):
            for tag, points in scalars.items():
                metrics += [Metric(f"{tag}/r{name.rpartition('-r')[2]}", value, began, step) for step, value in points]
        for first in range(0, len(metrics), 1000):  # as many as one call takes
            client.log_batch(run, metrics[first : first + 1000])
        client.log_batch(run, params=words, tags=[RunTag("stagebench.marks", ", ".join(row.marks))])
        client.set_terminated(run, "FINISHED" if row.outcome == "ok" else "FAILED", began)


def as_mlperf(folder: RunFolder, directory: Path) -> None:
    """MLPerf's log lines, a file a training process, of cases that train to an accuracy; others have no such log."""
    written = False
    for record in folder.records():
        if record.case.passes == (TRAIN,) and record.result == "ok":
            called = file_name(record.case.adapter, record.case.strategy)
            name = f"{called}-{record.case_id}-r{record.repeat}.log"
            write_whole(made(directory) / name, "".join(f":::MLLOG {json.dumps(line)}\n" for line in mllog(record)))
            written = True
    if not written:
        raise RequestError(
            f"{folder.path} has no case that trains to an accuracy, which is what MLPerf logs; run the plan `learning`"
        )


def mllog(record: Record) -> Iterator[dict[str, Any]]:
    """The lines of one training, on the clock of its epochs: testing, which MLPerf counts too, takes no time here.

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

    yield line("submission_benchmark", BENCHMARKS.get(case.workload, case.workload))
    yield line("submission_division", "open")
    yield line("submission_org", "stagebench")
    yield line("submission_platform", ", ".join(process.about.hosts) or "unknown")
    yield line("submission_status", "research")
    yield line("cache_clear", case.input.page_cache == "cold")
    yield line("init_start", kind="INTERVAL_START")
    yield line("global_batch_size", case.global_batch)
    yield line("seed", case.seed)
    yield line("opt_name", case.optimiser)
    yield line("opt_base_learning_rate", case.lr)
    yield line("train_samples", lesson.epochs[0].samples)
    yield line("eval_samples")  # a share of the data set, whose size no record keeps
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


TRACKERS: dict[str, Callable[[RunFolder, Path], None]] = {
    "tensorboard": as_tensorboard,
    "mlflow": as_mlflow,
    "mlperf": as_mlperf,
}


def write_folder(export: Callable[[Run, Path], None], folder: Run, path: Path) -> Path:
    """Write a folder of files; RequestError if a file is in the place, since trackers add to it."""
    if path.exists():
        raise RequestError(f"{path} is there already, and would be added to; name another folder with -o")
    export(folder, path)
    return path


def _missing(what: str, package: str) -> RequestError:
    return RequestError(f"{what} needs its package: pip install 'stagebench[{package}]'; or export csv")


def _number(value: Cell) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seconds(moment: str) -> float:
    """Since the epoch; now, for runs that did not say."""
    return datetime.fromisoformat(moment).timestamp() if moment else time.time()
