"""The pages of a run as files: what is on which, and that together they are all that the single page is."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from reports.cases import LISTED, details, listing
from reports.facts import noise_of
from reports.site import CASE, PAGES, render, write
from reports.text import UNKNOWN, milliseconds, share
from suite.analysis.summary import summarise
from suite.contracts.case import Case
from suite.plan import load, resolve
from suite.plan.networks import registered
from suite.plugins import adapters, launchers, workloads
from suite.results.run_folder import RunFolder
from suite.worker.pass_kinds import BY_NAME, COMPUTE_ONLY
from tests.reports.cells import Cells
from tests.reports.made_run import MadeRun, case_of, everything, kernels_of
from tests.reports.parsed import Page
from workloads.graph import Graph
from workloads.networks import by_name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return everything(tmp_path_factory.mktemp("site") / "run")


@pytest.fixture(scope="module")
def site(folder: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(folder, tmp_path_factory.mktemp("site") / "out").parent


def content(script: str) -> dict:
    """What a data script hands over."""
    return json.loads(script[script.index("(") + 1 : script.rindex(")")])


def test_the_pages_hold_the_numbers_and_charts_of_the_single_one(folder: RunFolder, site: Path) -> None:
    pages = [Cells((site / page.file).read_text()) for page in PAGES]
    whole = Cells(render(folder, summarise(folder)))
    assert [row for page in pages for row in page.rows] == whole.rows
    drawn = [
        figure for page in pages for figure in page.figures if isinstance(figure, dict)
    ]  # a list: the model's data
    assert drawn == whole.figures


def test_every_address_is_a_place_on_the_site(site: Path) -> None:
    pages = {path.name: Page(path.read_text()) for path in site.glob("*.html")}
    for name, page in pages.items():
        for address in page.addresses:
            file, _, place = address.partition("#")
            assert (site / (file or name)).is_file(), address
            if place and file != CASE:
                assert place in pages[file or name].ids, address


def test_plotly_is_there_once_and_only_pages_with_charts_load_it(site: Path) -> None:
    assert [path.parent.name for path in site.rglob("plotly*")] == ["assets"]
    loading = {path.name for path in site.glob("*.html") if "plotly" in path.read_text()}
    assert loading == {path.name for path in site.glob("*.html") if 'class="chart"' in path.read_text()}
    assert "evidence.html" not in loading


def test_the_first_page_is_small(site: Path) -> None:
    first = [site / "index.html", *site.glob("assets/[!p]*"), site / "data" / "cases-0.js"]
    assert sum(path.stat().st_size for path in first) < 300_000


def test_a_page_without_content_is_not_there(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.proven(case_of())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "accuracy.html").write_text("of an earlier report")
    site = write(run.folder, tmp_path / "out").parent
    assert not (site / "accuracy.html").exists()
    assert "Accuracy" not in Page((site / "index.html").read_text()).text


def test_every_case_is_listed_and_described_in_its_piece(folder: RunFolder) -> None:
    rows = summarise(folder) * (1 + LISTED // 20)
    pieces = [content(text) for _, text in listing(rows)]
    assert [len(piece["rows"]) for piece in pieces] == [LISTED, len(rows) - LISTED]
    assert {piece["of"] for piece in pieces} == {len(rows)}
    told = {name: content(text) for name, text in details(rows)}
    for row in rows:
        shown = told[f"case-{row.id[:2]}.js"][row.id]
        assert shown["label"] == row.case.label
        facts = dict(dict(shown["groups"])["Case"])
        assert facts["sampling.steps"] == str(row.case.sampling.steps), "a part's values one by one"
        steps = [[time / 1e7 for time in times] for _, times in shown["steps"]]
        assert steps == [pytest.approx(process.step_seconds.tolist(), abs=1e-7) for process in row.measured]


def test_a_case_shows_each_stage_beside_its_kernels_and_the_longest_of_them(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    case = run.proven(case_of(), repeats=3)
    run.changed(case, lambda record: record["ranks"][0].update(kernels=kernels_of("pytorch")), [1, 2])
    row = run.only()
    staged = next(each for each in row.processes if each.repeat == 1).stage_seconds
    ((_, text),) = details([row])
    (told,) = content(text).values()
    found = told["kernels"]
    assert found["stages"] == [
        [stage, milliseconds(busy), milliseconds(taken), share(1 - busy / taken)]
        for stage, busy in (("forward", 0.01), ("backward", 0.04), ("update", 0.01))
        for taken in [float(np.median(staged[stage]))]
    ]
    assert (found["profiler"], found["trace"]) == (
        "torch.profiler 2.13.0 (CUPTI)",
        f"attempts/{case.id}-r1/kernels-0.json.gz",
    )
    assert len(found["rows"]) == 10
    name, whole, *rest = found["rows"][0]
    assert (len(name), name[-1], whole[:59]) == (60, "…", name[:-1])
    assert rest == ["backward", "kernel", "2", "40.0", "66.7 %"]
    assert found["rows"][2][-3:] == ["1.5", "1.00", "1.7 %"]


def test_kernels_without_a_staged_pass_stand_alone(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    case = run.proven(case_of(passes=("kernels",)), repeats=1)
    kernels = {**(kernels_of("pytorch") or {}), "trace": ""}
    run.changed(case, lambda record: record["ranks"][0].update(kernels=kernels), [0])
    ((_, text),) = details([run.only()])
    (told,) = content(text).values()
    assert told["kernels"]["stages"][0] == ["forward", "10.0", UNKNOWN, UNKNOWN]
    assert told["kernels"]["trace"] == ""


def test_a_process_shows_its_memory_and_its_clock(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    case = run.proven(case_of(), repeats=1)
    use = {"seconds": 100.0, "busy_cpu_s": 1.0, "steal_cpu_s": 0.0, "cores": 2}
    noise = {"reference_before_s": [0.1], "reference_after_s": [0.1], "native": {**use, "clock_hz": 3.1e9}}
    memory = {"host_bytes": 3 << 30, "device_bytes": 5 << 30}

    def told(record: dict[str, Any]) -> None:
        record["ranks"][0].update(noise=noise, memory=memory)
        native = record["ranks"][0]["passes"]["native"]
        native["set_aside_s"] = [native["wall_s"] / 4]

    run.changed(case, told, [0])
    ((_, text),) = details(summarise(run.folder))
    facts = dict(next(dict(found["groups"]) for found in content(text).values())["Process 0"])
    assert (facts["memory of each rank at most"], facts["on its devices"]) == ("3.0 GiB", "5.0 GiB")
    assert facts["clock of its cores at the end"] == "3.10 GHz"
    assert "clock of its GPUs at the end" not in facts
    assert facts["native steps set aside, as others used the machine"] == "20.0 % of their time"
    assert any("native steps of 1 of 1 processes were set aside" in line for line in noise_of(summarise(run.folder)))


def test_a_process_says_what_each_of_its_passes_ran(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.proven(case_of(ranks=2), repeats=1)
    ((_, text),) = details(summarise(run.folder))
    facts = dict(next(dict(found["groups"]) for found in content(text).values())["Process 0"])
    assert facts["pass compute_only"].partition(": ")[2] == BY_NAME[COMPUTE_ONLY].runs
    assert " ms per step: native steps without communication" in facts["pass compute_only"]


def test_a_case_shows_what_its_gpus_did(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
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
    ((_, text),) = details(summarise(run.folder))
    (shown,) = content(text).values()
    headings, first, second = shown["gpus"]
    assert (len(headings), headings[0]) == (len(first), "host")
    power, clock, memory_clock = "650 (700)", "1\u202f755 (1\u202f200)", "2\u202f619 (2\u202f619)"
    known = ["bench", "NVIDIA H100", "GPU-1a2b3c4d", "87.5 %", "5.0 GiB", power, clock, memory_clock, "71"]
    assert first == [*known, "power cap"]
    assert second == ["bench", "unknown", "GPU-2", *[UNKNOWN] * 6, "nothing"]
    assert "clock of its GPUs at the end" not in dict(dict(shown["groups"])["Process 0"])


def test_the_plan_of_a_case_names_the_network_that_the_run_keeps(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.folder.keep_network(by_name()["mnist_small"].graph())
    run.proven(case_of(workload="mnist_small"), repeats=1)
    write(run.folder, tmp_path / "site")
    (script,) = (tmp_path / "site" / "data").glob("case-*.js")
    (told,) = content(script.read_text()).values()
    assert 'workload = "networks/mnist_small.json"' in told["plan"]
    assert (run.folder.path / "networks" / "mnist_small.json").is_file()
    assert told["place"].startswith("beside run.json")


def test_the_plan_of_a_case_with_one_s_own_network_is_the_same_case(tmp_path: Path) -> None:
    graph = Graph.from_dict({**by_name()["mnist_small"].graph().to_dict(), "name": "replayed"})
    run = MadeRun(tmp_path / "run")
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
    assert case_in(content(script.read_text())[case.id]["plan"]) == case


def test_what_failed_shows_its_last_lines(folder: RunFolder) -> None:
    told = [case for _, text in details(summarise(folder)) for case in content(text).values()]
    (crashed,) = [case for case in told if case["outcome"] == "crash"]
    assert crashed["logs"] == [["process 0: rank-0.log", "step 12\nKilled"]]


def test_what_went_well_shows_the_logs_that_have_lines(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.add(case_of(), repeats=1, evidence={"logs": {"rank-0.log": [], "launcher-0.log": ["a warning"]}})
    ((_, text),) = details(summarise(run.folder))
    ((_, told),) = content(text).items()
    assert told["logs"] == [["process 0: launcher-0.log", "a warning"]]


def test_plotly_is_of_a_major_version_whose_pages_were_looked_at() -> None:
    found = re.match(r"/\*\*\s+\* plotly\.js v(\d+)\.", get_plotlyjs())
    assert found
    assert found[1] == "4", "look at the pages in a browser, then name it here and in pyproject.toml"
