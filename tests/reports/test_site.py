"""The pages of a run as files: what is on which, and that together they are all that the single page is."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from stagebench.reports.pages import overview
from stagebench.reports.pages.case import details
from stagebench.reports.pages.evidence import noise_words
from stagebench.reports.pages.run import CASE, Report
from stagebench.reports.site.build import FILES, render, write
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.analysis.wording import UNKNOWN, milliseconds, share
from stagebench.suite.contracts.case import Case
from stagebench.suite.plan import load, resolve
from stagebench.suite.plan.networks import registered
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.pass_kinds import BY_NAME, COMPUTE_ONLY
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks import by_name
from tests.reports.cells import Cells
from tests.reports.made_run import MadeRun, case_of, everything, kernels_of
from tests.reports.parsed import Page

pytestmark = pytest.mark.xdist_group("site")  # its pages are made once


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return everything(tmp_path_factory.mktemp("site") / "run")


@pytest.fixture(scope="module")
def site(folder: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(folder, tmp_path_factory.mktemp("site") / "out").parent


def content(script: str) -> dict:
    """What a data script hands over."""
    return json.loads(script[script.index("(") + 1 : script.rindex(")")])


def test_the_pages_hold_the_numbers_of_the_single_one_and_need_nothing_but_themselves(
    folder: RunFolder, site: Path
) -> None:
    pages = [Cells((site / file).read_text()) for file in FILES if file != "inference.html"]  # none of them infers
    whole = Cells(render(folder, summarise(folder)))
    assert [row for page in pages for row in page.rows] == whole.rows
    assert {path.suffix for path in site.rglob("*.*")} <= {".html", ".js", ".svg", ".toml"}
    assert not [path for path in site.rglob("*.js") if path.parent.name != "data"]
    assert (site / "index.html").stat().st_size < 80_000
    pages = {path.name: Page(path.read_text()) for path in site.glob("*.html")}
    for name, page in pages.items():
        for address in page.addresses:
            file, _, place = address.partition("#")
            assert (site / (file or name)).is_file(), address
            if place and file != CASE:
                assert place in pages[file or name].ids, address


def test_every_case_is_listed_and_described_in_its_piece(folder, monkeypatch, site):
    rows = summarise(folder)
    monkeypatch.setattr(overview, "SHOWN", 10)
    monkeypatch.setattr(overview, "PIECE", 7)
    pieces = [content(text) for _, text in overview.pieces(Report(folder, rows, {"cases": "index.html"}))]
    assert [len(piece) for piece in pieces] == [7, len(rows) - 17]
    told = described(folder)
    for row in rows:
        shown = told[row.id]
        assert row.case.workload in shown["title"]
        steps = [[time / 1e7 for time in times] for _, times in shown["steps"]]
        assert steps == [pytest.approx(process.step_seconds.tolist(), abs=1e-7) for process in row.measured]


def described(folder: RunFolder) -> dict[str, Any]:
    """Every case of a run, as its page has it."""
    report = Report(folder, summarise(folder), {"cases": "index.html"})
    return {id_: case for _, text in details(report) for id_, case in content(text).items()}


def only(folder: RunFolder) -> str:
    """The words of its one case."""
    (case,) = described(folder).values()
    return Page(case["html"]).text


def test_a_case_shows_each_stage_beside_its_kernels_and_the_longest_of_them(run: MadeRun, tmp_path: Path) -> None:
    case = run.proven(case_of(), repeats=3)
    run.changed(case, lambda record: record["ranks"][0].update(kernels=kernels_of("pytorch")), [1, 2])
    (profile,) = [run.only().kernels]
    assert profile
    text = only(run.folder)
    for one in profile.stages:
        assert f"{one.stage} {milliseconds(one.busy)} {milliseconds(one.staged)} {share(one.idle_share)}" in text
    assert "By torch.profiler 2.13.0 (CUPTI)" in text
    assert f"attempts/{case.id}-r1/kernels-0.json.gz" in text
    assert "… backward kernel 2 40.0 66.7 %" in text
    assert "sgd_7 update kernel 1.5 1.00 1.7 %" in text
    assert "sgd_8" not in text, "ten rows"
    alone = MadeRun(tmp_path / "alone")
    case = alone.proven(case_of(passes=("kernels",)), repeats=1)
    kernels = {**(kernels_of("pytorch") or {}), "trace": ""}
    alone.changed(case, lambda record: record["ranks"][0].update(kernels=kernels), [0])
    text = only(alone.folder)
    assert f"forward 10.0 {UNKNOWN} {UNKNOWN}" in text, "without a staged pass"
    assert "All that it saw" not in text


def test_every_case_has_its_layers_on_its_own_page_and_no_other_page_has_them(run: MadeRun, tmp_path: Path) -> None:
    cases = [run.proven(case_of("caffempi", seed=seed), repeats=1) for seed in range(1, 42)]
    told = described(run.folder)
    for row in summarise(run.folder):
        text, times = Page(told[row.id]["html"]).text, (row.layers or [])[0]
        assert "Every layer (" in text
        assert f"{times.layer} {times.kind} {milliseconds(times.forward_s)}" in text
    assert len(told) == len(cases) == 41
    site = write(run.folder, tmp_path / "site").parent
    assert all("Every layer" not in page.read_text() for page in site.glob("*.html"))


def test_a_process_shows_its_memory_and_its_clock(run: MadeRun) -> None:
    case = run.proven(case_of(), repeats=1)
    use = {"seconds": 100.0, "busy_cpu_s": 1.0, "steal_cpu_s": 0.0, "cores": 2}
    noise = {"reference_before_s": [0.1], "reference_after_s": [0.1], "native": {**use, "clock_hz": 3.1e9}}
    memory = {"host_bytes": 3 << 30, "device_bytes": 5 << 30}

    def told(record: dict[str, Any]) -> None:
        record["ranks"][0].update(noise=noise, memory=memory)
        native = record["ranks"][0]["passes"]["native"]
        native["set_aside_s"] = [native["wall_s"] / 4]

    run.changed(case, told, [0])
    text = only(run.folder)
    assert "memory of each rank at most 3.0 GiB on its devices 5.0 GiB" in text
    assert "clock of its cores at the end 3.10 GHz" in text
    assert "native steps set aside, as others used the machine 20.0 % of their time" in text
    (noise,) = [process.noise for process in run.only().processes]
    assert any("native steps of 1 of 1 processes were set aside" in line for line in noise_words([("", noise)]))


def test_a_case_shows_what_its_gpus_did(run: MadeRun) -> None:
    case = run.proven(case_of(), repeats=1)
    use = {"seconds": 100.0, "busy_cpu_s": 1.0, "steal_cpu_s": 0.0, "cores": 2}
    whole = {
        "uuid": "GPU-1a2b3c4d-0000-0000-0000-000000000000",
        "busy_share": 0.875,
        "memory_bytes": 5 << 30,
        "watts": 650.5,
        "most_watts": 699.6,
        "sm_clock_hz": 1.755e9,
        "least_sm_clock_hz": 1.2e9,
        "memory_clock_hz": 2.619e9,
        "least_memory_clock_hz": 2.619e9,
        "celsius": 71,
        "throttled_by": ["power cap"],
    }

    def told(record: dict[str, Any]) -> None:
        noise = {"reference_before_s": [0.1], "reference_after_s": [0.1]}
        gpus = [whole, {"uuid": "GPU-2", "throttled_by": []}]
        record["ranks"][0]["noise"] = {**noise, "native": {**use, "gpus": gpus}}
        record["ranks"][0]["hello"]["machine"] = {"gpus": [f"GPU 0: NVIDIA H100 (UUID: {whole['uuid']})"]}

    run.changed(case, told, [0])
    text = only(run.folder)
    power, clock, memory_clock = "650 (700)", "1 755 (1 200)", "2 619 (2 619)"
    assert f"bench NVIDIA H100 GPU-1a2b3c4d 87.5 % 5.0 GiB {power} {clock} {memory_clock} 71 power cap" in text
    assert f"bench unknown GPU-2 {' '.join([UNKNOWN] * 6)} nothing" in text


def test_the_plan_of_a_case_names_the_network_that_the_run_keeps(run: MadeRun, tmp_path: Path) -> None:
    run.folder.keep_network(by_name()["mnist_small"].graph())
    run.proven(case_of(workload="mnist_small"), repeats=1)
    write(run.folder, tmp_path / "site")
    (script,) = (tmp_path / "site" / "data").glob("case-*.js")
    (told,) = content(script.read_text()).values()
    text = Page(told["html"]).text
    assert 'workload = "networks/mnist_small.json"' in text
    assert (run.folder.path / "networks" / "mnist_small.json").is_file()
    assert "beside run.json, which has the network" in text


def test_the_plan_of_a_case_with_one_s_own_network_is_the_same_case(run: MadeRun, tmp_path: Path) -> None:
    graph = Graph.from_dict({**by_name()["mnist_small"].graph().to_dict(), "name": "replayed"})
    run.folder.keep_network(graph)

    def case_in(plan: str) -> Case:
        (tmp_path / "run" / "case.toml").write_text(plan)
        (found,) = resolve(registered(load(tmp_path / "run" / "case.toml")), adapters(), launchers(), workloads())
        return found.case

    block = 'adapter = "reference"\nstrategy = "single"\nworkload = "networks/replayed.json"\nbatch = 4\n'
    case = case_in(f'name = "own"\n[[cases]]\n{block}')
    assert case.workload == "replayed"
    run.refuse(case, None, "")
    write(run.folder, tmp_path / "site")
    (script,) = (tmp_path / "site" / "data").glob("case-*.js")
    plan = re.search(r'id="plan">(.*?)</pre>', content(script.read_text())[case.id]["html"], re.DOTALL)
    assert plan
    assert case_in(unescape(plan[1])) == case


def test_what_failed_shows_its_last_lines_and_what_went_well_those_there_are(folder: RunFolder, run: MadeRun) -> None:
    (crashed,) = [row for row in summarise(folder) if row.outcome == "crash"]
    assert "Last lines, process 0: rank-0.log step 12 Killed" in Page(described(folder)[crashed.id]["html"]).text
    run.add(case_of(), repeats=1, evidence={"logs": {"rank-0.log": [], "launcher-0.log": ["a warning"]}})
    text = only(run.folder)
    assert "Last lines, process 0: launcher-0.log a warning" in text
    assert "rank-0.log" not in text


def test_processes_are_one_table_and_what_they_share_is_folded(run: MadeRun, tmp_path: Path) -> None:
    run.proven(case_of(ranks=2), repeats=3)
    text = only(run.folder)
    assert "Processes process 0 process 1 process 2 samples/s" in text
    assert text.count("Python 3.11.7, tox environment") == 1
    assert f"pass compute_only, {BY_NAME[COMPUTE_ONLY].runs} " in text
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "accuracy.html").write_text("of an earlier report")
    site = write(run.folder, tmp_path / "out").parent
    assert not (site / "accuracy.html").exists(), "a page without content is not there"
    assert "accuracy.html" not in Page((site / "index.html").read_text()).addresses
