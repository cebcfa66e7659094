"""What experiment trackers are given, read back by their own packages."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from stagebench.reports.command import export
from stagebench.reports.exports.write import FOLDERS, charts_of, write
from stagebench.suite.analysis.latency import bound
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.errors import RequestError
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.case_parts import Training
from tests.reports.made_experiments import DIGITS, batches, inference, learner, taught
from tests.reports.made_run import MadeRun, case_of, everything
from tests.reports.sample import CHROMIUM


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = MadeRun(tmp_path_factory.mktemp("trackers") / "run")
    run.proven(case_of())
    run.refuse(case_of(ranks=2), "unsupported", "ddp wants one process per device")
    return run.folder


def test_what_stands_is_not_added_to_and_without_an_accuracy_there_is_no_mlperf_log(folder, tmp_path):
    with pytest.raises(RequestError, match="run the plan `learning`"):
        write(folder, "mlperf", tmp_path)
    with pytest.raises(RequestError, match="run the plan `inference`"):
        write(folder, "loadgen", tmp_path)
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        with pytest.raises(RequestError, match="is there already"):
            write(folder, name, tmp_path)


def learnt(row: Row) -> dict[str, list[float]]:
    """What a training of one process learnt, by what the trackers call it."""
    lesson = row.processes[0].learnt
    assert lesson
    return {
        "train/loss": [loss for loss in lesson.losses if loss is not None],
        "train/accuracy": [epoch.accuracy for epoch in lesson.epochs if epoch.accuracy is not None],
        "train/epoch_seconds": [epoch.seconds for epoch in lesson.epochs],
    }


def test_tensorboard_reads_every_step_and_what_a_training_learnt(folder: RunFolder, tmp_path: Path) -> None:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")

    def read(path: Path, files: str, tag: str) -> list[float]:
        (file,) = path.glob(f"{files}/*tfevents*")
        values = [one for event in loader.LegacyEventFileLoader(str(file)).Load() for one in event.summary.value]
        return [one.simple_value for one in values if tag in one.tag]

    path = write(folder, "tensorboard", tmp_path)
    for process in summarise(folder)[0].processes:
        assert read(path, f"*-r{process.repeat}", "step") == pytest.approx(process.step_seconds.tolist())
    run = batches(tmp_path / "run", seeds=(1,))
    path, row = write(run, "tensorboard", tmp_path / "learnt"), summarise(run)[0]
    for tag, values in learnt(row).items():
        assert values
        assert read(path, f"*{row.id}-r0", tag) == pytest.approx(values)


@pytest.mark.filterwarnings("ignore")  # the client's own
def test_mlflow_finds_a_run_a_case_and_what_a_training_learnt(folder, run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)

    def read(folder: RunFolder, place: Path) -> tuple[Any, dict[str, Any]]:
        client = mlflow.MlflowClient(write(folder, "mlflow", place).as_uri())
        (experiment,) = [one for one in client.search_experiments() if one.name != "Default"]
        return client, {run.data.params["id"]: run for run in client.search_runs([experiment.experiment_id])}

    client, runs = read(folder, tmp_path)
    measured, refused = summarise(folder)
    assert runs[measured.id].data.metrics["samples_per_second"] == measured.rate.value
    assert runs[refused.id].info.status == "FAILED"
    steps = client.get_metric_history(runs[measured.id].info.run_id, "native/step_seconds/r0")
    assert [one.value for one in steps] == measured.processes[0].step_seconds.tolist()
    case = learner("pytorch", 1, training=Training(epochs=3, target=0.97))
    run.proven(case, repeats=1, ranks=taught(case))
    client, runs = read(run.folder, tmp_path / "learnt")
    for tag, values in learnt(run.only()).items():
        assert [one.value for one in client.get_metric_history(runs[case.id].info.run_id, f"{tag}/r0")] == values


def test_the_mlperf_package_parses_every_line_of_a_training(tmp_path: Path) -> None:
    parser = pytest.importorskip("mlperf_logging.compliance_checker.mlp_parser")
    constants = pytest.importorskip("mlperf_logging.mllog.constants")
    run = batches(tmp_path / "run")
    logs = sorted(write(run, "mlperf", tmp_path).glob("*.log"))
    assert len(logs) == sum(len(row.processes) for row in summarise(run))
    known = {value for value in vars(constants).values() if isinstance(value, str)}
    for log in logs:
        lines, failed = parser.parse_file(str(log), ruleset="5.1.0")
        assert (failed, len(lines)) == ([], len(log.read_text().splitlines()))
        assert {line.key for line in lines} <= known
        assert [line.timestamp for line in lines] == sorted(line.timestamp for line in lines)
        assert lines[-1].value["metadata"]["status"] in ("success", "aborted")


@pytest.mark.parametrize("rules", ["1.0.0", "2.1.0", "3.1.0", "4.0.0"])  # the last that have the benchmark
def test_the_mlperf_checker_accepts_a_benchmark_of_mlperf_s(run: MadeRun, tmp_path: Path, rules: str) -> None:
    checker = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")
    for ranks, target in ((1, 0.5), (2, 0.999)):  # reached, and missed
        training = Training(epochs=4, target=target)
        case = case_of(workload="resnet50", ranks=ranks, data=DIGITS, passes=("train",), training=training)
        run.proven(case, repeats=1, ranks=taught(case))
    logs = {log: log.read_text() for log in write(run.folder, "mlperf", tmp_path).glob("*.log")}
    assert sorted(text.count('"success"') for text in logs.values()) == [0, 1]
    for log in logs:
        found = checker.make_checker("training", rules, quiet=False, werror=True)
        accepted = found.check_file(str(log), f"training_{rules}/common.yaml")
        assert accepted, (found.warnings, found.overwritable, found.not_overwritable)


MARKER = ":::MLLOG"
Loads = tuple[list[Row], Path]


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Loads:
    """The rows of a run that infers, and its LoadGen logs."""
    folder = tmp_path_factory.mktemp("loads")
    run = inference(folder / "run")
    return summarise(run), write(run, "loadgen", folder)


def messages(log: Path) -> dict[str, Any]:
    """Values by key, as MLCommons' parser reads them: tools/submission/log_parser.py."""
    lines = log.read_text().splitlines()
    assert all(line.startswith(MARKER) for line in lines)
    found = [json.loads(line[len(MARKER) :]) for line in lines]
    return {each["key"]: each["value"] for each in found}


def loadgen(scenario: str, folder: Path) -> Path:
    """The logs of LoadGen itself, which asks a system that answers at once."""
    lg = pytest.importorskip("mlperf_loadgen")

    def answer(samples: Any) -> None:
        lg.QuerySamplesComplete([lg.QuerySampleResponse(each.id, 0, 0) for each in samples])

    settings, output, log = lg.TestSettings(), lg.LogOutputSettings(), lg.LogSettings()
    settings.scenario, settings.mode = getattr(lg.TestScenario, scenario), lg.TestMode.PerformanceOnly
    settings.min_duration_ms, settings.min_query_count, settings.server_target_qps = 1, 700, 20_000
    folder.mkdir()
    output.outdir, output.copy_summary_to_stdout = str(folder), False
    log.log_output, log.enable_trace = output, False
    system = lg.ConstructSUT(answer, lambda: None)
    library = lg.ConstructQSL(16, 16, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(system, library, settings, log)
    lg.DestroyQSL(library)
    lg.DestroySUT(system)
    return folder


@pytest.mark.parametrize("scenario", ["Offline", "SingleStream", "MultiStream", "Server"])
def test_loads_are_logged_in_the_words_of_loadgen(scenario: str, loads: Loads, tmp_path: Path) -> None:
    theirs = loadgen(scenario, tmp_path / "theirs")
    known = messages(theirs / "mlperf_log_detail.txt")
    summary = (theirs / "mlperf_log_summary.txt").read_text()
    rows, written = loads
    logs = {path: messages(path) for path in written.glob("*/*/mlperf_log_detail.txt")}
    logs = {path: values for path, values in logs.items() if values["effective_scenario"] == scenario}
    rates = 2 if scenario == "Server" else 1
    assert len(logs) == rates * sum(len(row.processes) for row in rows)
    for path, values in logs.items():
        assert set(values) <= set(known)
        assert {name: isinstance(each, str) for name, each in values.items()} == {
            name: isinstance(known[name], str) for name in values
        }
        lines = path.with_name("mlperf_log_summary.txt").read_text().splitlines()
        assert all(line.rpartition(":")[0] in summary for line in lines)
        assert any("latency (ns)" in line for line in lines) or scenario == "Offline"


def test_rates_that_loadgen_would_log_are_those_that_were_measured(loads: Loads) -> None:
    rows, written = loads
    row = next(row for row in rows if row.case.serving.model_server == "mosec")
    for process in row.processes:
        (folder,) = written.glob(f"*-{row.id}-r{process.repeat}")
        values = messages(folder / "server-200" / "mlperf_log_detail.txt")
        seconds = np.sort(np.concatenate([each.latency_s for each in process.tries if each.rate == 200.0]))
        assert values["result_query_count"] == len(seconds) == 800
        assert values["result_99.00_percentile_latency_ns"] == round(1e9 * seconds[int(0.99 * 800)])
        assert values["early_stopping_met"]
        assert values["result_overlatency_query_count"] == 0
        alone = messages(folder / "single_stream" / "mlperf_log_detail.txt")
        least = bound(np.array(process.latencies["single_stream"]), 0.9)
        assert alone["early_stopping_latency_ss"] == round(1e9 * least)


def test_the_charts_of_all_pages_are_found_by_name(tmp_path: Path) -> None:
    found = dict(charts_of(everything(tmp_path / "run")))
    assert len(found) > 20
    assert "learning-alexnet-on-photographs-loss-by-step" in found
    assert any(name.startswith("speeds-alexnet-1-device-batch-8-tuned") for name in found)


def test_every_chart_is_a_picture_without_a_browser(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("STAGEBENCH_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    export(folder.path, ["charts"], tmp_path)
    assert "STAGEBENCH_CHROMIUM" in capsys.readouterr().err
    path = tmp_path / "charts"
    assert {each.suffix for each in path.iterdir()} == {".svg"}
    for each in path.iterdir():
        assert ElementTree.parse(each).getroot().tag.endswith("svg")
        assert "var(" not in each.read_text()


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path; STAGEBENCH_CHROMIUM may name one")
def test_every_chart_is_a_png_too_where_there_is_one(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_CHROMIUM", CHROMIUM or "")
    path = write(folder, "charts", tmp_path)
    for each in path.glob("*.svg"):
        assert each.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
