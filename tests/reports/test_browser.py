"""The pages in a real browser: what a reader does with them, and what somebody else's text cannot do to them."""

import csv
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from reports import cases
from reports.command import import_
from reports.context import scenario_of
from reports.frame import Frame, rendered, write_assets
from reports.many import COMPARED, write
from reports.serve import server
from reports.site import CASE, PAGES, put, write_single
from suite.predict.collectives import ALGORITHMS, Link, Network
from suite.predict.prediction import Answer, Asked, predict
from suite.predict.scenario import SCHEDULES, Jitter, LayerCost, Scenario
from tests.reports import made_experiments
from tests.reports.browsing import chromium, fits, opened, tab, until
from tests.reports.made_comm import communication
from tests.reports.made_run import MadeRun, case_of, everything, proof_of, record_of
from tests.reports.sample import CHROMIUM, pictures

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path; STAGEBENCH_CHROMIUM may name one"),
]

HOSTILE = '</script><img src=x onerror="document.title=1">'
# Made experiments, and the pages that answer their questions; their other pages are as those of `run`.
EXPERIMENTS = {
    "time_to_train": ("accuracy.html",),
    "stragglers": ("accuracy.html",),
    "parts": ("stages.html",),
    "batches": ("accuracy.html",),
    "autotune": ("index.html", "speed.html"),
    "epochs": ("accuracy.html", "communication.html", "scaling.html"),
}
# Folders of the site, the first its own pages, `single` the page of `run` as one file.
RUNS = (".", "run", "single", "comm", "paper", "article", "nccl", *EXPERIMENTS)
PAPER = 718  # CSS pixels: A4 without the margins that browsers leave


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything, with hostile words wherever a plan, a host or a log can bring them, beside other runs.

    Those of EXPERIMENTS are not on the site's own pages: they would be compared there with others of their plan.
    Their pages are those that there are (a study's tables stand with its plan alone).
    """
    runs = tmp_path_factory.mktemp("browser")
    folder = everything(runs / "run", HOSTILE)
    later = MadeRun(runs / "later")
    later.proven(case_of("pytorch", "alexnet"), slower=2.0)
    later.folder.write_about(later.folder.about.but(created="2026-11-21T10:00:00+00:00"))
    printed = Path(__file__).parents[1] / "fixtures" / "foreign"
    import_([printed / "pytorch_results.txt"], runs / "article", "pytorch")
    import_([printed / "all_reduce_perf.txt"], runs / "nccl", None)
    paper, comm = made_experiments.paper(runs / "paper"), communication(runs / "comm", HOSTILE)
    write([folder.path, later.folder.path, paper.path, comm.path, runs / "article", runs / "nccl"], runs / "site")
    # Only now: records of another plan would be left out.
    (folder.path / "plan.toml").write_text(f"name = 'quick'\ntitle = '{HOSTILE}'\n")
    host = next((folder.path / "hosts").iterdir())
    host.write_text(host.read_text().replace("AMD EPYC 7B13", HOSTILE.replace('"', '\\"')))
    put(folder, runs / "site" / "run", "../", "../index.html")
    write_single(folder, runs / "site" / "single")
    for name in EXPERIMENTS:
        put(getattr(made_experiments, name)(runs / name), runs / "site" / name, "../", "../index.html")
    return runs / "site" / "run"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Any, site: Path) -> Iterator[Any]:
    with tab(browser, site.parent.as_uri()) as found:
        yield found


def pages(site: Path, run: str) -> list[Path]:
    if run in EXPERIMENTS:
        return [site.parent / run / name for name in EXPERIMENTS[run]]
    return sorted((site.parent / run).glob("*.html"))


def faults(page: Any) -> list[tuple[str, str]]:
    """Whatever axe-core finds. It takes charts for what their labels say: it does not see a drawn text's ground."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")
    found = axe.Axe().run(page, context={"exclude": [[".chart svg"]]}, options={"preload": False}).response
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]]


def test_the_runs_have_every_page_that_there_is(site: Path) -> None:
    folders = {path.parent.relative_to(site.parent).as_posix() for path in site.parent.rglob("*.html")}
    assert folders == {*RUNS, "later"}  # which has the pages of `run`
    assert {page.file for page in PAGES} <= {path.name for run in RUNS for path in pages(site, run)}
    assert COMPARED in {path.name for path in pages(site, ".")}


@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_cut_off_and_nothing_fails(page: Any, site: Path, run: str) -> None:
    for path in pages(site, run):
        opened(page, path)
        fits(page)
        assert "onerror" not in page.evaluate("[...document.images].map((image) => image.outerHTML).join()")


def test_what_others_wrote_is_shown_as_text(page: Any, site: Path) -> None:
    crashed = case_of("caffempi", "mnist_small", data="/data/digits.npz")
    data, knobs = f"/data/digits.npz{HOSTILE}", {"memory_format": f"contiguous{HOSTILE}"}
    wrong = case_of("pytorch", "mnist_small", data=data, knobs=knobs)
    shown = [
        ("index.html", HOSTILE),  # the plan's title
        ("machine.html", HOSTILE),  # the processor's name
        ("stages.html", f"conv1{HOSTILE}"),
        ("predicted.html", ""),  # in the data of its script
        ("evidence.html", f"ddp wants one process per device{HOSTILE}"),
        (f"case.html#{crashed.id}", f"step 12\nKilled{HOSTILE}"),
        (f"case.html#{wrong.id}", f"memory_format contiguous{HOSTILE}"),
        (f"case.html#{wrong.id}", data),
        (f"case.html#{case_of().id}", f"bench{HOSTILE}"),  # the host's name
        (f"case.html#{case_of().id}", f"relu{HOSTILE}"),  # a kernel
        (f"../{COMPARED}", f"hosts bench{HOSTILE} → bench"),
        ("../comm/index.html", f"A <fast> one{HOSTILE}, 2 cores"),
        ("../comm/index.html", f"a{HOSTILE}"),
        ("../single/index.html", f"ddp wants one process per device{HOSTILE}"),
    ]
    for file, words in shown:
        page.goto(f"{site.as_uri()}/{file}")
        until(page, f"document.body.textContent.includes({json.dumps(words)})")
        assert page.title() != "1"
        assert not page.evaluate("document.querySelectorAll('img[src=x]').length")


@pytest.mark.parametrize(("run", "scheme"), [*((run, "light") for run in RUNS), ("run", "dark")])
def test_no_fault_of_accessibility(page: Any, site: Path, run: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for path in pages(site, run):
        opened(page, path)
        assert (path.name, faults(page)) == (path.name, [])


def test_the_readme_s_pictures_are_drawn(browser: Any, site: Path, tmp_path: Path) -> None:
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures(browser, site, tmp_path))


def rows(page: Any) -> list[str]:
    return page.locator("#listed tbody tr").all_inner_texts()


def test_filters_search_and_order_stand_in_the_address(page: Any, site: Path) -> None:
    opened(page, site / "index.html")
    whole = len(rows(page))
    page.get_by_label("network").select_option("resnet50")
    page.get_by_label("search").fill("ddp")
    page.get_by_role("button", name="samples/s").click()
    page.get_by_role("button", name="samples/s").click()
    found = rows(page)
    assert len(found) == 2 < whole
    assert "26.9" in found[0]
    assert "13.6" in found[1]
    page.reload()
    assert rows(page) == found
    page.get_by_role("button", name="Show everything").click()
    assert len(rows(page)) == whole


def test_an_address_that_sorts_by_no_column_changes_nothing(page: Any, site: Path) -> None:
    opened(page, site / "index.html")
    found = rows(page)
    page.goto(f"{(site / 'index.html').as_uri()}#sort=toString")
    page.reload()
    assert rows(page) == found


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pages of a run of more cases than the table shows at first; their list comes in three pieces."""
    run = MadeRun(tmp_path / "run")
    for seed in range(1, 121):
        run.refuse(case_of(seed=seed), "unavailable", "there is no mpiexec; install it")
    monkeypatch.setattr(cases, "LISTED", 50)
    put(run.folder, tmp_path / "site")
    write_assets(tmp_path / "site")
    return tmp_path / "site"


def test_every_piece_of_the_list_comes_and_the_address_keeps_that_all_is_shown(browser: Any, long: Path) -> None:
    found = "document.getElementById('found').textContent"
    with tab(browser, long.as_uri()) as page:
        opened(page, long / "index.html")
        until(page, f"{found} === '120 of 120 cases, the first 100 below'")
        assert len(rows(page)) == 100
        page.get_by_role("button", name="Show all 120").click()
        assert len(rows(page)) == 120
        page.reload()
        until(page, f"{found} === '120 of 120 cases'")
        assert len(rows(page)) == 120


def test_the_keyboard_reaches_a_case_and_its_steps(page: Any, site: Path) -> None:
    opened(page, site / "index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#listed tbody a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#steps svg")
    page.wait_for_selector("#stages svg")
    assert page.locator("h1").inner_text() == "pytorch/single alexnet 1 rank batch 8 imagenet-like"
    assert "stagebench run case.toml -o again" in page.locator("#rest").inner_text()


def copied(page: Any, button: Any) -> list[list[str]]:
    """What a button puts into the clipboard."""
    page.evaluate("navigator.clipboard.writeText = async (text) => (window.copied = text)")
    button.click()
    until(page, "window.copied")
    return list(csv.reader(io.StringIO(page.evaluate("copied"))))


def test_the_raw_numbers_of_a_case_are_copied(page: Any, site: Path) -> None:
    opened(page, site / "case.html")
    page.wait_for_selector("#stages svg")
    head, *steps = copied(page, page.locator("#stages").get_by_role("button", name="Copy as CSV"))
    assert head == ["step", "io, ms", "h2d, ms", "forward, ms", "backward, ms", "update, ms"]
    assert [float(line[0]) for line in steps] == list(range(1, len(steps) + 1))


def test_the_table_of_cases_is_copied_as_it_is_filtered(page: Any, site: Path) -> None:
    opened(page, site / "index.html")
    page.get_by_label("network").select_option("resnet50")
    head, *lines = copied(page, page.locator("#copy"))
    assert head[:4] == ["id", "framework", "strategy", "network"]
    assert {line[3] for line in lines} == {"resnet50"}
    assert len(lines) == len(rows(page))


def test_any_other_table_is_copied(page: Any, site: Path) -> None:
    opened(page, site / "speed.html")
    head, *lines = copied(page, page.locator(".scroll + button.copy").first)
    assert head[:3] == ["Case", "samples/s", "per device"]
    assert len(lines) == page.locator(".scroll").first.locator("tbody tr").count()
    assert any(line[0].startswith("pytorch/ddp") and float(line[2]) > 0 for line in lines)


def test_charts_follow_the_colour_scheme(page: Any, site: Path) -> None:
    colour = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
    page.emulate_media(color_scheme="light")
    opened(page, site / "index.html")
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    until(page, f"{colour} !== '{light}'")


def test_what_is_folded_is_printed_and_folded_again(page: Any, site: Path) -> None:
    opened(page, site / "evidence.html")
    closed = page.locator("details:not([open])")
    before = closed.count()
    assert before
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert closed.count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert closed.count() == before


def test_a_chart_is_no_wider_than_paper_while_it_is_printed(page: Any, site: Path) -> None:
    opened(page, site / "predicted.html")
    width = "document.querySelector('#what-if svg').getBoundingClientRect().width"
    before = page.evaluate(width)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(width) < PAPER < before
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    until(page, f"{width} === {before}")


@pytest.mark.parametrize("run", ["run", "comm", "paper"])
def test_paper_cuts_nothing_off(page: Any, site: Path, run: str) -> None:
    page.emulate_media(media="print")
    for path in pages(site, run):
        opened(page, path)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        fits(page, [PAPER], tables=PAPER)
        heads = "[...document.querySelectorAll('thead button')]"
        assert page.evaluate(f"{heads}.every((head) => head.clientWidth)"), "a table without its headings"


def test_a_chart_is_saved_as_a_picture(page: Any, site: Path) -> None:
    opened(page, site / "index.html")
    with page.expect_download() as found:
        page.get_by_role("button", name="Save as SVG").click()
    assert found.value.path().read_text().startswith("<svg")


def test_tables_sort_and_their_cells_are_no_formulas(page: Any, site: Path) -> None:
    opened(page, site / "evidence.html")
    page.locator("#outcomes th button", has_text="outcome").click()
    outcomes = page.locator("#outcomes tbody td:nth-child(2)").all_inner_texts()
    assert outcomes == sorted(outcomes)
    csv = page.evaluate("stagebench.csv([['=1+1', '+x', '@x', '\\u22122.5', '1\\u202f234', 'a,\"b\"']])")
    assert csv == '\'=1+1,\'+x,\'@x,-2.5,1234,"a,""b"""\r\n'
    assert page.evaluate("[0.0123, 12.34, 1234.5, 0.00001].map(stagebench.number)") == [
        "0.012",
        "12.3",
        "1\u202f235",
        "1.0e\u221205",
    ]


def made_up(network: Network, schedule: str) -> Scenario:
    """Six layers, one of them without gradients, whose buckets close in the middle of the network."""
    costs = [(0.004, 0.009, 2e5), (0.001, 0.002, 0.0), (0.02, 0.03, 3e6), (0.008, 0.02, 3e7), (0.002, 0.003, 1.5e7)]
    layers = tuple(LayerCost(f"layer{index}", *cost) for index, cost in enumerate([*costs, (0.001, 0.001, 4e3)]))
    parts = {"h2d": 0.003, "update": 0.007, "read": 0.05, "readers": 2, "compression": 2.0, "interference": 0.3}
    return Scenario(8, layers, network, schedule, **parts)


def test_the_model_of_the_page_is_that_of_predict(page: Any, site: Path) -> None:
    opened(page, site / "predicted.html")
    jitters = (Jitter.measured([1.0, 1.01, 0.98, 1.2]), Jitter.normal(0.01).stretched(3))
    for schedule, algorithm, together in product(SCHEDULES, ALGORITHMS, (None, 128)):
        network = Network(Link(3e-5, 4e-9, 1e-10), Link(1e-6, 1e-10), 4, algorithm, 2)
        for jitter in jitters:
            asked = Asked("made up", made_up(network, schedule).but(jitter=jitter), (), {}, together=together)
            sizes = [1, 2, 8, 16, 100]
            answer = Answer(asked, [schedule], sizes)
            given = scenario_of(answer)
            model = "([one, ranks]) => stagebench.model.rate(one.scenario, ranks, one.together)"
            found = [page.evaluate(model, [given, ranks]) for ranks in sizes]
            expected = [one.rate for one in answer.predictions]
            assert found == pytest.approx(expected, rel=1e-9), (schedule, algorithm, together)


def test_another_link_redraws_the_prediction(page: Any, site: Path) -> None:
    opened(page, site / "predicted.html")
    before = page.locator("#answer").inner_text()
    page.get_by_label("bandwidth").press("Home")
    assert page.locator("#answer").inner_text() != before
    assert page.get_by_label("bandwidth").input_value() == "6"


def test_the_sliders_change_the_scenario_as_python_does(browser: Any, tmp_path: Path) -> None:
    """Links, and a device that is faster; the link within a node, which was measured by itself, stays as it is."""
    network = Network(Link(3e-5, 4e-9, 1e-10), Link(1e-6, 1e-10), 4)
    scenario = made_up(network, "wfbp")
    given = scenario_of(Answer(Asked("made up", scenario, (), {}), ["wfbp"], [1]))
    found = {"predicted": [], "unpredicted": ["any other"], "scenarios": [given], "case_file": CASE}
    body = rendered(["predicted"], found)["predicted"]
    write_assets(tmp_path)
    (tmp_path / "predicted.html").write_text(Frame("Made up").page(body, scripts=("model.js", "what_if.js")))
    bandwidth, latency, speed = 8.5, -4.25, 0.4  # powers of ten
    moved = {"bandwidth between nodes": bandwidth, "latency between nodes": latency, "device speed": speed}
    sizes = [1, 2, 8, 16, 100]
    with tab(browser, tmp_path.as_uri()) as page:
        opened(page, tmp_path / "predicted.html")
        for label, value in moved.items():
            move = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"
            page.get_by_label(label).evaluate(move, value)
        rate = "(sizes) => sizes.map((ranks) => stagebench.model.rate(stagebench.chosen(), ranks))"
        rates = page.evaluate(rate, sizes)
    between = Link(10**latency, 10**-bandwidth, network.between.gamma)
    changed = scenario.slower(compute=10**-speed).but(network=replace(network, between=between))
    assert rates == pytest.approx([predict(changed, ranks).rate for ranks in sizes], rel=1e-9)


def test_a_served_page_shows_by_itself_what_was_measured_meanwhile(browser: Any, tmp_path: Path) -> None:
    run, case = MadeRun(tmp_path / "run"), case_of()
    run.proven(case, repeats=2)
    with server(tmp_path / "run", tmp_path / "site", 0, every=2) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{running.server_address[1]}/"
        with tab(browser, address) as page:
            page.goto(f"{address}run/index.html")
            page.get_by_text("1 case, 2 of 3 processes").wait_for()
            run.write(f"records/{case.id}-r2.json", record_of(case, 2, proof_of(case)))
            page.get_by_text("1 case, 3 of 3 processes").wait_for()
        running.shutdown()
