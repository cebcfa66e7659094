"""The pages in a real browser: what a reader does with them, and what somebody else's text cannot do to them."""

import csv
import io
import json
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stagebench.reports.command import import_
from stagebench.reports.pages import overview
from stagebench.reports.pages.run import CASE
from stagebench.reports.pages.scaling import STEPS, grid
from stagebench.reports.site.build import FILES, put
from stagebench.reports.site.build import write as write_run
from stagebench.reports.site.many import COMPARED, write
from stagebench.reports.site.serve import Server
from stagebench.suite.predict.collectives import Link, Network
from stagebench.suite.predict.prediction import Asked, predict
from stagebench.suite.predict.scenario import SCHEDULES, LayerCost, Scenario
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
    "inference": ("inference.html",),
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
    put(folder, runs / "site" / "run", "../index.html")
    write_run(folder, runs / "site" / "single", single=True)
    for name in EXPERIMENTS:
        put(getattr(made_experiments, name)(runs / name), runs / "site" / name, "../index.html")
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
    """Whatever axe-core finds."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")
    found = axe.Axe().run(page, options={"preload": False}).response
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]]


def test_the_runs_have_every_page_that_there_is(site: Path) -> None:
    folders = {path.parent.relative_to(site.parent).as_posix() for path in site.parent.rglob("*.html")}
    assert folders == {*RUNS, "later"}  # which has the pages of `run`
    assert set(FILES) <= {path.name for run in RUNS for path in pages(site, run)}
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
        ("speed.html", HOSTILE),  # the plan's title
        ("method.html", HOSTILE),  # the processor's name
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


@pytest.mark.parametrize(("run", "scheme"), [*product(RUNS, ("light",)), *product((".", "run", "comm"), ("dark",))])
def test_no_fault_of_accessibility(page: Any, site: Path, run: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for path in pages(site, run):
        opened(page, path)
        assert (path.name, faults(page)) == (path.name, [])


# The number of words in the first 900 pixels of a page; those for readers of screens lie in a box of one pixel.
FIRST_WORDS = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), seen = [];
  while (texts.nextNode()) {
    const { top, width } = texts.currentNode.parentElement.getBoundingClientRect();
    if (width > 1 && top < 900) seen.push(texts.currentNode.data);
  }
  return seen.join(' ').match(/[^ \\n]+/g).length;
}"""


def test_a_first_screen_has_few_words(page: Any, site: Path) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    opened(page, site / "index.html")
    assert 100 < page.evaluate(FIRST_WORDS) <= 320


def rows(page: Any) -> list[str]:
    return [text for text in page.locator("#listed tbody tr:not(.group):visible").all_inner_texts() if text]


def test_a_search_is_kept_in_the_address_and_sorting_across_groups_says_each_line_s_setting(
    page: Any, site: Path
) -> None:
    opened(page, site / "index.html")
    whole = len(rows(page))
    page.get_by_label("Filter the cases").fill("resnet50 pytorch ddp")
    found = rows(page)
    assert len(found) == 2 < whole
    assert "13.6" in found[0]
    assert page.locator("output").inner_text() == "2 shown"
    page.reload()
    assert rows(page) == found
    page.get_by_label("Filter the cases").fill("")
    assert len(rows(page)) == whole
    assert "#" not in page.url
    for _ in range(2):
        page.locator("#listed thead button", has_text="samples/s").click()
    found = rows(page)
    assert len(found) == whole
    assert "690" in found[0]
    assert "mnist_small · 1 device" in found[0]
    assert page.locator("#listed .group").count() == 0


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pages of a run of more cases than the table has at first; the others come in two pieces."""
    run = MadeRun(tmp_path / "run")
    for seed in range(1, 121):
        run.refuse(case_of(seed=seed), "unavailable", "there is no mpiexec; install it")
    monkeypatch.setattr(overview, "SHOWN", 20)
    monkeypatch.setattr(overview, "PIECE", 60)
    put(run.folder, tmp_path / "site")
    return tmp_path / "site"


def test_a_search_loads_every_piece_and_finds_in_all(browser: Any, long: Path) -> None:
    said = "document.querySelector('output').textContent"
    with tab(browser, long.as_uri()) as page:
        opened(page, long / "index.html")
        assert page.evaluate(said) == "20 of 120 shown"
        page.get_by_label("Filter the cases").fill("pytorch")
        until(page, f"{said} === '120 shown'")
        page.reload()
        until(page, f"{said} === '120 shown'")
        page.get_by_label("Filter the cases").fill("seed 119")
        assert len(rows(page)) == 1


def test_the_keyboard_reaches_a_case_and_its_steps(page: Any, site: Path) -> None:
    opened(page, site / "index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#listed tbody a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#steps svg")
    page.wait_for_selector("#stages svg")
    assert page.locator("h1").inner_text() == "PyTorch, alexnet"
    assert "stagebench run case.toml -o again" in page.locator("#case").inner_text()


def copied(page: Any, button: Any) -> list[list[str]]:
    """What a button puts into the clipboard."""
    page.evaluate("navigator.clipboard.writeText = async (text) => (window.copied = text)")
    button.click()
    until(page, "window.copied")
    return list(csv.reader(io.StringIO(page.evaluate("copied"))))


def test_the_raw_numbers_of_a_case_and_any_table_as_it_is_filtered_are_copied(page: Any, site: Path) -> None:
    page.goto(f"{site.as_uri()}/case.html#{case_of().id}")
    page.wait_for_selector("#stages svg")
    head, *steps = copied(page, page.locator("#stages").get_by_role("button", name="Copy as CSV"))
    assert head == ["step", "read, ms", "copy, ms", "forward, ms", "backward, ms", "update, ms"]
    assert [float(line[0]) for line in steps] == list(range(1, len(steps) + 1))
    opened(page, site / "index.html")
    page.get_by_label("Filter the cases").fill("resnet50")
    head, *lines = copied(page, page.get_by_role("button", name="Copy as CSV").first)
    assert head[:2] == ["Case", "samples/s"]
    assert len([line for line in lines if len(line) > 1]) == len(rows(page))
    opened(page, site / "speed.html")
    head, *lines = copied(page, page.locator(".scroll + button.copy").first)
    assert head[:3] == ["Case", "samples/s", "per device"]
    assert any(line[0].startswith("PyTorch ddp") and float(line[2]) > 0 for line in lines if len(line) > 2)


def test_charts_have_their_pictures_show_a_framework_in_every_panel_and_follow_the_colour_scheme(
    page: Any, site: Path
) -> None:
    colour = "getComputedStyle(document.querySelector('.plot circle')).fill"
    page.emulate_media(color_scheme="light")
    opened(page, site / "index.html")
    page.locator(".plot tr[data-of=pytorch] th").first.hover()
    assert page.locator("body.looking").count() == 1
    assert page.locator(".plot tr.look").count() == page.locator(".plot tr[data-of=pytorch]").count() > 3
    addresses = page.eval_on_selector_all("a.tool", "(links) => links.map((link) => link.getAttribute('href'))")
    assert len(set(addresses)) == len(addresses) > 5
    assert all((site / address).read_text().startswith("<svg") for address in addresses)
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    until(page, f"{colour} !== '{light}'")


def test_pages_and_charts_need_no_script_and_the_readme_s_pictures_are_drawn(
    browser: Any, site: Path, tmp_path: Path
) -> None:
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures(browser, site, tmp_path))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for file in (file for file in (*FILES, CASE) if (site / file).exists()):
        page.goto((site / file).as_uri())
        assert page.locator("h1").inner_text()
    assert "records/ID-r*.json" in page.locator("main").inner_text()
    page.get_by_role("link", name="The table of all cases").click()
    assert page.url.endswith("index.html#cases")
    page.goto((site / "index.html").as_uri())
    assert page.locator(".plot circle").count() > 10
    assert len(rows(page)) > 10
    context.close()


def test_what_is_folded_is_printed_and_folded_again(page: Any, site: Path) -> None:
    opened(page, site / "evidence.html")
    closed = page.locator("details:not([open])")
    before = closed.count()
    assert before
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert closed.count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert closed.count() == before


@pytest.mark.parametrize("run", ["run", "comm", "paper"])
def test_paper_cuts_nothing_off(page: Any, site: Path, run: str) -> None:
    page.emulate_media(media="print")
    for path in pages(site, run):
        opened(page, path)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        fits(page, [PAPER], tables=PAPER)
        heads = "[...document.querySelectorAll('.scroll thead button')]"
        assert page.evaluate(f"{heads}.every((head) => head.clientWidth)"), "a table without its headings"


def test_tables_sort_and_their_cells_are_no_formulas(page: Any, site: Path) -> None:
    opened(page, site / "evidence.html")
    page.locator("#outcomes th button", has_text="outcome").click()
    outcomes = page.locator("#outcomes tbody td:nth-child(2)").all_inner_texts()
    assert outcomes == sorted(outcomes)
    csv = page.evaluate("stagebench.csv([['=1+1', '+x', '@x', '\\u22122.5', '1\\u202f234', 'a,\"b\"']])")
    assert csv == '\'=1+1,\'+x,\'@x,-2.5,1234,"a,""b"""\r\n'
    numbers = page.evaluate("[0.0123, 12.34, 1234.5, 0.00001].map(stagebench.number)")
    assert numbers == ["0.012", "12.3", "1\u202f235", "1.0e\u221205"]


def test_the_grid_of_what_if_is_what_predict_says() -> None:
    costs = [(0.004, 0.009, 2e5), (0.02, 0.03, 3e6), (0.008, 0.02, 3e7)]
    layers = tuple(LayerCost(f"layer{index}", *cost) for index, cost in enumerate(costs))
    network = Network(Link(3e-5, 4e-9, 1e-10), Link(1e-6, 1e-10), 4)
    scenario = Scenario(8, layers, network, "wfbp", h2d=0.003, update=0.007, interference=0.3)
    algorithms = ("ring", "tree")
    found = grid(Asked("made up", scenario, (), {}, together=100), algorithms)
    assert found["sizes"] == [1, 4, 16, 64]
    rates = iter(found["rates"])
    for schedule, algorithm, wider, more, faster in product(SCHEDULES, algorithms, *STEPS.values()):
        for size in found["sizes"]:
            link = Link(3e-5 + 1e-6 * more, 4e-9 / wider, 1e-10)
            own = scenario.batched(100 / size / 8).slower(compute=1 / faster)
            own = own.but(schedule=schedule, network=Network(link, Link(1e-6, 1e-10), 4, algorithm))
            assert next(rates) == pytest.approx(predict(own, size).rate, rel=1e-3)
    assert not list(rates)


@pytest.mark.parametrize("control", ["bandwidth", "latency", "all-reduce", "device speed"])
def test_another_choice_redraws_the_prediction(page: Any, site: Path, control: str) -> None:
    opened(page, site / "predicted.html")
    field = page.get_by_label(control)
    said = "(one) => `${document.getElementById('answer').textContent} ${one.nextElementSibling?.textContent}`"
    before = field.evaluate(said)
    if control == "all-reduce":
        field.select_option("tree")
    else:
        field.press("End" if control == "latency" else "Home")
    after = field.evaluate(said)
    assert after != before
    assert after.partition("as fitted")[2].split()[0] == before.partition("as fitted")[2].split()[0]
    assert field.input_value() == {"all-reduce": "1", "latency": "2"}.get(control, "0")


def test_a_served_page_shows_by_itself_what_was_measured_meanwhile(browser: Any, tmp_path: Path) -> None:
    run, case = MadeRun(tmp_path / "run"), case_of()
    run.proven(case, repeats=2)
    with Server(tmp_path / "run", tmp_path / "site", 0, every=2) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{running.server_address[1]}/"
        with tab(browser, address) as page:
            page.goto(f"{address}run/index.html")
            page.get_by_text("1 case, quick run, 2 of 3 processes").wait_for()
            run.write(f"records/{case.id}-r2.json", record_of(case, 2, proof_of(case)))
            page.get_by_text("1 case, quick run, 3 of 3 processes").wait_for()
        running.shutdown()
