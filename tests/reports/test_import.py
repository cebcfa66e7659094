"""`stagebench import`: what other programs printed, in tables of ours, marked, and compared with nothing."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from stagebench.reports.command import import_, report
from stagebench.reports.exports.write import FOLDERS, FORMATS
from stagebench.reports.exports.write import write as export
from stagebench.reports.imports.programs import Result, read
from stagebench.reports.pages.epochs import _figures, charts_of, over_devices
from stagebench.reports.site.many import publish
from stagebench.suite.analysis.links import links
from stagebench.suite.analysis.panels import by_network, for_charts
from stagebench.suite.analysis.runs import MeasuredRun
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.cli.show import show
from stagebench.suite.errors import RequestError
from stagebench.suite.results.foreign import write
from stagebench.suite.results.run_folder import RunFolder
from tests.reports.parsed import Page
from tests.support.errors import raising

PRINTED = Path(__file__).parents[1] / "fixtures" / "foreign"


def of(name: str, framework: str | None = None) -> tuple[Result, ...]:
    return read(PRINTED / name, framework).results


TIMM = ("benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv", "benchmark-infer-amp-nchw-pt291-cu130-5090-dynamo.csv")
LAMBDA = "pytorch-train-throughput-fp16.csv"
ARTICLE = [PRINTED / f"{framework}_results.txt" for framework in ("pytorch", "tensorflow")]


@pytest.fixture
def article(tmp_path: Path) -> Path:
    import_(ARTICLE, tmp_path / "article", None)
    return tmp_path / "article"


@pytest.mark.parametrize(
    ("name", "framework", "label", "rate"),
    [
        ("pytorch_results.txt", None, "pytorch/data-parallel mnist_small 4 devices batch 128 mnist", 6967.539),
        ("tf_cnn_benchmarks.log", None, "tensorflow/horovod resnet50 1 rank batch 32 imagenet (synthetic)", 300.1),
        ("tf_cnn_benchmarks.log", None, "tensorflow/horovod resnet50 2 ranks batch 32 imagenet (synthetic)", 541.0),
        ("horovod.log", "pytorch", "pytorch/horovod resnet50 4 ranks batch 32 synthetic", 400.0),
        # All epochs' samples over all epochs' seconds; the log's own throughput is within 0.1 %.
        (
            "mlperf_resnet.txt",
            "mxnet",
            "mxnet/unknown resnet50 8 ranks batch 408 unknown",
            3 * 1281167 / (65.238 + 61.676 + 61.685),
        ),
        (TIMM[0], None, "pytorch/single resnet50 1 rank batch 512 synthetic", 1218.01),
        (TIMM[1], None, "pytorch/inference resnet50 1 rank batch 1024 synthetic", 24613.55),
        (LAMBDA, None, "pytorch/unknown resnet50 1 rank batch 448 unknown", 905.0),
        (LAMBDA, None, "pytorch/unknown resnet50 2 ranks batch 448 unknown", 2468.0),
    ],
)
def test_a_speed_is_read_with_what_the_output_says_of_it(name, framework, label, rate):
    rates = [one.samples_per_second for one in of(name, framework) if one.case.label == label]
    assert rates[0] == pytest.approx(rate, rel=1e-6)
    known = {TIMM[0]: "amp", TIMM[1]: "amp", LAMBDA: "float16"}
    assert {one.case.precision for one in of(name, framework)} == {known.get(name, "unknown")}


def test_nccl_tests_are_links_with_their_own_bus_bandwidth(tmp_path: Path) -> None:
    import_([PRINTED / "all_reduce_perf.txt"], tmp_path / "nccl", None)
    (link,) = links(RunFolder.open(tmp_path / "nccl", None))
    assert (link.case.label, link.hosts) == ("nccl all-reduce, 4 ranks", ("worker-0", "worker-1"))
    assert [round(point.bus_bandwidth / 1e9, 2) for point in link.points] == [0.08, 1.23, 3.93]  # as the file says
    report([tmp_path / "nccl"], None, False, False)
    page = (tmp_path / "nccl" / "report" / "index.html").read_text()
    assert "foreign and unverified" in page
    assert "All ranks begin a sample" not in page  # which is how ours are measured
    assert "imported: nccl-tests, all_reduce_perf.txt line 12 · worker-0, worker-1" in page
    assert link.to_dict()["case"].keys() == {"backend", "operation", "counts", "dtype", "placement"}
    (first, *_) = json.loads(export(RunFolder.open(tmp_path / "nccl", None), "json", tmp_path).read_text())
    assert (first["outcome"], first["ranks"], first["bytes"]) == ("foreign", 4, 1024)


def test_nothing_is_said_of_a_case_that_its_program_did_not_print(tmp_path: Path) -> None:
    import_([PRINTED / "horovod.log"], tmp_path / "one", None)
    (row,) = summarise(RunFolder.open(tmp_path / "one", None))
    assert row.to_dict()["case"] == {
        "adapter": "horovod",
        "strategy": "horovod",
        "workload": "resnet50",
        "batch": 32,
        "data": "synthetic",
        "placement": {"nodes": 1, "ranks_per_node": 4, "devices": 1, "device": "cuda"},
    }
    report([tmp_path / "one"], tmp_path / "page", False, False)
    pages = "".join(page.read_text() for page in (tmp_path / "page").glob("*.html"))
    assert "resnet50 · 4 devices · batch 32" in pages
    for ours in ("unknown", "slowest rank, from a common barrier", "0 of 1"):
        assert ours not in pages


def test_frameworks_that_may_not_be_compared_have_charts_of_their_own(tmp_path: Path) -> None:
    several = [one for framework in ("pytorch", "tensorflow") for one in of("pytorch_results.txt", framework)]
    write(several, tmp_path / "both", ())
    panels = for_charts(by_network(summarise(RunFolder.open(tmp_path / "both", None))))
    adapters = {frozenset(row.case.adapter for row in panel.rows) for panel in panels}
    assert adapters == {frozenset({"pytorch"}), frozenset({"tensorflow"})}
    assert {panel.warning for panel in panels} == {"not compared: foreign"}


def test_an_imported_row_is_marked_scaled_and_compared_with_nothing(article: Path, tmp_path: Path) -> None:
    rows = summarise(RunFolder.open(article, None))
    assert {(row.outcome, *row.marks, row.sound, row.against) for row in rows} == {("foreign", "foreign", False, None)}
    (found,) = [
        row.scaling.efficiency.value
        for row in rows
        if row.scaling
        and (row.case.adapter, row.case.workload, row.case.input.repeat) == ("pytorch", "mnist_small", 1)
        and (row.case.batch, row.case.placement.device_count) == (512, 4)
    ]
    assert found == pytest.approx(9.340805053710938 / 7.892665386199951 / 4)
    lines = json.loads(export(RunFolder.open(article, None), "json", tmp_path).read_text())
    assert {(line["comparable"], line["marks"]) for line in lines} == {(False, "foreign")}
    assert "seconds of the first epochs: 11.7, 10.3" in lines[0]["reason"]
    assert {(line["precision"], line["tuning"]) for line in lines} == {(None, None)}
    with pytest.raises(RequestError, match="holds a run of foreign training"):
        MeasuredRun.read(article)


def test_a_single_value_has_no_interval_anywhere(tmp_path: Path) -> None:
    import_([PRINTED / "tf_cnn_benchmarks.log"], tmp_path / "runs" / "one", None)
    folder = RunFolder.open(tmp_path / "runs" / "one", None)
    assert {row.rate.scatters for row in summarise(folder) if row.rate} == {False}
    publish(tmp_path / "runs", tmp_path / "site")
    report([tmp_path / "runs" / "one"], tmp_path / "single", True, False)
    for name in FORMATS:
        if name not in (*FOLDERS, "parquet"):
            export(folder, name, tmp_path / "exports")
    files = [path for name in ("site/one", "exports") for path in (tmp_path / name).rglob("*.*")]
    assert len(files) > 10
    for path in (*files, tmp_path / "site" / "index.html"):
        text = path.read_text()
        assert re.findall(r"\bnan\b|±|\bInfinity\b|(?<![\d.])([\d.]+(?: %)?) … \1(?![\d.])", text, re.I) == [], path
    pages = {path.name: Page(path.read_text()).text for path in (tmp_path / "site" / "one").glob("*.html")}
    assert pages.keys() == {"index.html", "speed.html", "scaling.html", "case.html"}
    assert "TensorFlow horovod foreign 300 300 imported: tf_cnn_benchmarks" in pages["speed.html"]
    assert "2 devices 541 1.80 90.1 %" in pages["scaling.html"]
    assert "Foreign and unproven, and compared with nothing" in pages["index.html"]
    (first, _) = json.loads((tmp_path / "exports" / "results.json").read_text())
    assert [first[f"samples_per_second{end}"] for end in ("", "_low", "_high")] == [300.1, None, None]
    assert 'class="whisker"' not in (tmp_path / "site" / "one" / "speed.html").read_text()


def published(which: str, framework: str, model: str, repeat: int, batch: int) -> list[float]:
    """Seconds of the first or second epoch on 1, 2 and 4 GPUs, as the article's file has them."""
    lines = [json.loads(line) for file in ARTICLE if framework in file.name for line in file.read_text().splitlines()]
    wanted = {"model_size": model, "n_dataset_repeat": repeat, "batch_size": batch}
    found = [line for line in lines if wanted.items() <= line.items()]
    return [line[f"{which} epoch time"] for line in sorted(found, key=lambda line: int(line["n_gpus"]))]


LARGE = "mnist_large on mnist · "
FIGURES = [  # the setting of the article's figure here, what a series is, and (model, repeat, batch) of each series
    ("mnist · 8\u00d7 data · batch 256 per device · samples/s of the second epoch", "rate",
     [("small", 8, 256), ("large", 8, 256)]),
    (f"{LARGE}8\u00d7 data · samples/s of the second epoch", "rate",
     [("large", 8, batch) for batch in (128, 256, 512)]),
    (f"{LARGE}batch 256 per device · seconds of the second epoch", "seconds",
     [("large", repeat, 256) for repeat in (1, 4, 8)]),
    (f"{LARGE}1\u00d7 data · batch 256 per device · first against second", "both", [("large", 1, 256)]),
    (f"{LARGE}batch 256 per device · samples/s of the second epoch", "rate",
     [("large", repeat, 256) for repeat in (1, 4, 8)]),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "value", "series"), FIGURES, ids=["5a", "5b", "5c", "5d", "5e"])
def test_the_article_s_figures_are_redrawn_from_its_lines(article, setting, value, series):
    found = over_devices(summarise(RunFolder.open(article, None)))
    assert found
    charts = charts_of(found, _figures(found))
    assert [one.setting for one in charts[: len(FIGURES)]] == [one for one, _, _ in FIGURES], "they come first"
    assert [one.title.startswith("Figure 5") for one in charts] == [True] * 5 + [False] * (len(charts) - 5)
    (chart,) = [one for one in _figures(found).values() if one.setting == setting]
    assert chart.warning == "not compared: foreign"
    drawn = sorted([*line.x, *line.y] for line in chart.lines)
    wanted = []
    for framework in ("pytorch", "tensorflow"):
        for model, repeat, batch in series:
            first, second = (published(which, framework, model, repeat, batch) for which in ("first", "second"))
            rates = [60_000 * repeat / seconds for seconds in second]
            across = [60_000 * repeat / seconds for seconds in first] if value == "both" else [1, 2, 4]
            wanted.append([*across, *(second if value == "seconds" else rates)])
    assert len(drawn) == len(wanted)
    for ours, theirs in zip(drawn, sorted(wanted), strict=True):
        assert ours == pytest.approx(theirs)


def test_its_report_says_so_on_every_page_and_stands_beside_others(article: Path, tmp_path: Path) -> None:
    report([article], tmp_path / "alone", False, False)
    first = (tmp_path / "alone" / "index.html").read_text()
    assert "Foreign and unproven, and compared with nothing" in first
    assert "4,104,202, its TensorFlow code 347,146" in (tmp_path / "alone" / "speed.html").read_text()
    assert "not compared: foreign" in (tmp_path / "alone" / "scaling.html").read_text()
    report([article], tmp_path / "single", True, False)
    import_([PRINTED / "horovod.log"], tmp_path / "horovod", None)
    report([article, tmp_path / "horovod"], tmp_path / "both", False, False)
    assert "108 foreign" in (tmp_path / "both" / "index.html").read_text()
    with pytest.raises(RequestError, match="is a run folder already"):
        import_([PRINTED / "horovod.log"], article, None)
    with pytest.raises(RequestError, match="a folder of its own"):
        import_([PRINTED / "horovod.log", PRINTED / "all_reduce_perf.txt"], tmp_path / "mixed", None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nothing", "no result was found; these outputs are understood"),
        ('{"n_dataset_repeat": 1}', "--framework"),
        ("total images/sec: 5.0", "line 1: no model or batch size"),
        ("Total img/sec on 2 GPU(s): 5.0 +-1.0", "no line `Model:`"),
        ("  8  2  float  sum  -1  6.2  0.00  0.00  0  6.2  0.00  0.00  0", "no line `Rank"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_a_remedy(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(text)
    with pytest.raises(RequestError, match=says):
        read(tmp_path / "out.log", None)


@pytest.mark.parametrize(
    ("own", "saved", "mark"),
    [(",", ";", "';'"), (",", "\t", repr("\t")), (",", '","', repr('","')), ("1218.01", '"1218,01"', "line 4")],
)
def test_a_table_that_a_spreadsheet_saved_otherwise_is_refused_by_its_separator(own, saved, mark, tmp_path):
    text = (PRINTED / TIMM[0]).read_text()
    (tmp_path / TIMM[0]).write_text(text.replace(own, saved))
    with raising(RequestError, tmp_path / TIMM[0], mark):
        read(tmp_path / TIMM[0], None)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_table_of_another_encoding_is_read_by_its_mark(encoding: str, tmp_path: Path) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / TIMM[0]).write_text(mark + (PRINTED / TIMM[0]).read_text(), encoding)
    assert read(tmp_path / TIMM[0], None).results == of(TIMM[0])


ARTICLE_LINE = '{"n_dataset_repeat": 1, "batch_size": %s, "n_gpus": 1, "model_size": "s", "first epoch time": 1, %s}'


@pytest.mark.parametrize(
    "text",
    [
        ARTICLE_LINE % ("1e999", '"second epoch time": 1'),
        ARTICLE_LINE % ("8", '"second epoch time": NaN'),
        ARTICLE_LINE % ("0", '"second epoch time": 1'),
        ARTICLE_LINE % ("8", '"second epoch time": ' + "[" * 3000),
        "Model: a\n 1 per device\n 1.2.3 global\ntotal images/sec: 5.0",
        "Model: a\n 0 per device\n 1 global\ntotal images/sec: 5.0",
        "Model: a\n 1 per device\n 1 global\ntotal images/sec: ..",
        "Model: a\nBatch size: 0\nTotal img/sec on 2 GPU(s): 5.0 +-1.0",
        "Model: a\nBatch size: 8\nTotal img/sec on 0 GPU(s): 5.0 +-1.0",
        f"Model: a\nBatch size: 8\nTotal img/sec on {'9' * 4000} GPU(s): 5.0 +-1.0",
        "# all_reduce_perf\n# Rank 0 on a device 0\n 8 2 float sum -1 6.2.1 0.00 0.00 0 6.2 0.00 0.00 0",
    ],
)
def test_damaged_output_is_refused_by_the_file_s_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(text)
    with pytest.raises(RequestError, match=r"out\.log: .*(import|correct) it") as refused:
        read(tmp_path / "out.log", "pytorch")
    assert len(str(refused.value)) < 6000


def test_lines_without_times_or_of_minutes_and_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(f"Model: a{' ' * 10**6}b\n{'Rank 1 on a ' * 10**5}\n")
    with pytest.raises(RequestError, match="no result was found"):
        read(tmp_path / "out.log", None)
    os.mkfifo(tmp_path / "pipe.log")
    for place in (tmp_path / "pipe.log", tmp_path):
        with pytest.raises(RequestError, match="is no file; name what a benchmark printed"):
            read(place, None)
    (tmp_path / "out.log").write_text('{"n_dataset_repeat": 1, "batch_size": 8, "n_gpus": 1}')
    with pytest.raises(RequestError, match="line 1 is no result"):
        read(tmp_path / "out.log", "pytorch")


def test_a_terminal_shows_them_with_their_mark(article, tmp_path, capsys):
    import_([PRINTED / "tf_cnn_benchmarks.log"], tmp_path / "one", None)
    import_([PRINTED / "all_reduce_perf.txt"], tmp_path / "nccl", None)
    capsys.readouterr()
    show(tmp_path / "one")
    title, also, *lines = capsys.readouterr().out.splitlines()
    assert title == "Imported: 2 results of tf_cnn_benchmarks"
    assert also.startswith("Foreign and unproven")
    assert [line.split(" · ")[0].split()[-2:] for line in lines if line.startswith("TensorFlow")] == [
        ["300", "samples/s"],
        ["541", "samples/s"],
    ], "no interval"
    show(tmp_path / "one", json=True)
    assert {row["outcome"] for row in json.loads(capsys.readouterr().out)} == {"foreign"}
    show(article, full=True)
    names = [line.partition(" ")[0] for line in capsys.readouterr().out.splitlines()]
    assert sum(name in ("PyTorch", "TensorFlow") for name in names) == len(RunFolder.open(article, None).cases)
    show(tmp_path / "nccl")
    printed = capsys.readouterr().out
    assert "nccl all-reduce, 4 ranks, imported: nccl-tests, all_reduce_perf.txt line 12" in printed
    assert " 3,932 " in printed, "bus MB/s: 3.93 GB/s, as the file says"
    with pytest.raises(RequestError, match="measured peak"):
        show(tmp_path / "one", roofline=True)


def test_published_figures_are_named_by_their_machines_and_by_no_others(tmp_path: Path) -> None:
    """A first visitor looks for a GPU; two of them are never one case."""
    files = [PRINTED / name for name in ("mlperf_resnet.txt", *TIMM, LAMBDA)]
    import_(files, tmp_path / "runs" / "published", None)
    rows = summarise(RunFolder.open(tmp_path / "runs" / "published", None))
    systems = {row.case.knobs["system"] for row in rows}
    assert systems == {"Dell 1xDSS8440x8A100-PCIE-40GB", "rtx3090", "5090", "RTX 3090", "RTX 4090"}
    assert {(row.outcome, row.sound, row.against) for row in rows} == {("foreign", False, None)}
    assert len({row.id for row in rows}) == len(rows) == 1 + 8 + 3 * 5
    (mlperf, *_) = rows
    assert mlperf.to_dict()["case"]["knobs"] == {"system": "Dell 1xDSS8440x8A100-PCIE-40GB"}
    assert len(mlperf.rates.steps) == 3
    publish(tmp_path / "runs", tmp_path / "site")
    pages = "".join(Page(page.read_text()).text for page in (tmp_path / "site" / "published").glob("*.html"))
    for system in systems:
        assert system in pages
    assert not (tmp_path / "site" / "systems.html").exists(), "foreign figures are compared with nothing"


def test_a_table_without_its_batch_sizes_and_a_log_without_its_devices_are_refused(tmp_path: Path) -> None:
    shutil.copy(PRINTED / LAMBDA, tmp_path)
    with raising(RequestError, tmp_path / LAMBDA, 2, "pytorch-train-bs-fp16.csv"):
        read(tmp_path / LAMBDA, None)
    sizes = PRINTED / "pytorch-train-bs-fp16.csv"
    with raising(RequestError, sizes, "throughput"):
        read(sizes, None)
    log = (PRINTED / "mlperf_resnet.txt").read_text()
    path = tmp_path / "log.txt"
    path.write_text(log.replace("d_batch_size", "batch"))
    with raising(RequestError, path, log.count("\n")):
        read(path, None)
    path.write_text(log.replace('"success"', '"aborted"'))
    with raising(RequestError, path, log.count("\n"), "aborted"):
        read(path, None)
    path.write_text(log.replace('"key": "run_stop"', '"key": "run_st'))
    with raising(RequestError, path, log.count("\n")):
        read(path, None)
    path.write_text(
        f"{log}{log}".replace('"global_batch_size", "value": 3264', '"global_batch_size", "value": 6528', 1)
    )
    found = [(one.case.placement.ranks, one.case.batch) for one in read(path, None).results]
    assert found == [(16, 408), (8, 408)]
