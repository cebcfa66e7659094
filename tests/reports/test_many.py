"""Several runs on one site, published and served."""

import re
import shutil
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import typer

from stagebench.reports.command import import_
from stagebench.reports.command import publish as publish_command
from stagebench.reports.pages import compared
from stagebench.reports.site import many
from stagebench.reports.site.many import ATOM, publish, runs_in
from stagebench.reports.site.serve import Server
from stagebench.suite.errors import RequestError
from stagebench.suite.results.records import Host
from stagebench.suite.worker.messages import Machine
from tests.reports import made_experiments
from tests.reports.made_run import MadeRun, case_of
from tests.reports.parsed import Page

PRINTED = Path(__file__).parents[1] / "fixtures" / "foreign"


def made(path: Path, *adapters: str, plan: str = "quick", day: int = 0, **how: Any) -> MadeRun:
    """A run of a case of each framework, of some day of November."""
    run = MadeRun(path, plan)
    for adapter in adapters:
        run.proven(case_of(adapter), **how)
    if day:
        run.folder.write_about(run.folder.about.but(created=f"2026-11-{day}T10:00:00+00:00"))
    return run


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs of one name, one of them of two frameworks."""
    made(tmp_path / "results" / "a" / "quick", "pytorch")
    made(tmp_path / "results" / "b" / "quick", "pytorch", "caffempi")
    return tmp_path / "results"


def test_every_run_has_a_permanent_address_a_badge_and_an_entry_in_the_feed(results: Path, tmp_path: Path) -> None:
    found, _ = publish(results, tmp_path / "site", "https://bench.example/pages")
    assert {entry.folder for entry in found} == {"a--quick", "b--quick"}
    first = Page((tmp_path / "site" / "index.html").read_text())
    assert {"a--quick/index.html", "b--quick/index.html"} <= set(first.addresses)
    assert "leads on alexnet" in first.text
    assert "Without signatures no check can see who measured a run" in first.text
    run = Page((tmp_path / "site" / "a--quick" / "index.html").read_text())
    assert "../index.html" in run.addresses
    feed = ElementTree.parse(tmp_path / "site" / "feed.xml")
    links = {link.get("href") for link in feed.iterfind(f"{{{ATOM}}}entry/{{{ATOM}}}link")}
    assert links == {f"https://bench.example/pages/{name}/index.html" for name in ("a--quick", "b--quick")}
    (own,) = feed.iterfind(f"{{{ATOM}}}link")
    assert (own.get("rel"), own.get("href")) == ("self", "https://bench.example/pages/feed.xml")
    assert feed.findtext(f"{{{ATOM}}}author/{{{ATOM}}}name") == "stagebench"
    assert {"feed.xml", "badges/a--quick.svg", "badges/b--quick.svg"} <= set(first.addresses)
    assert "2 ok" in (tmp_path / "site" / "badges" / "b--quick.svg").read_text()


@pytest.mark.parametrize("created", ["2026-11-22T10:00:00+00:00", "2020-11-22T10:00:00+00:00"])
def test_a_run_takes_no_other_one_s_address_nor_leaves_its_own_to_another(results, tmp_path, created):
    before = {entry.folder: entry.created for entry in publish(results, tmp_path / "site")[0]}
    new = MadeRun(results / "0" / "quick")
    new.refuse(case_of(), None, "")
    new.folder.write_about(new.folder.about.but(created=created))
    after = {entry.folder: entry.created for entry in publish(results, tmp_path / "site")[0]}
    assert after == {**before, "0--quick": created}
    shutil.rmtree(results / "a")
    assert {entry.folder for entry in publish(results, tmp_path / "site")[0]} == {"0--quick", "b--quick"}


def test_an_address_is_that_of_its_path_alone(tmp_path: Path) -> None:
    paths = ["a/b-c", "a-b/c", "a--b/c", "a/b--c", "a-/b", "a/-b", "x y", "x-y", "docs", "badges"]
    for path in paths:
        MadeRun(tmp_path / "all" / path).refuse(case_of(), None, "")
    together = {entry.folder for entry in publish(tmp_path / "all", tmp_path / "site")[0]}
    alone = set()
    for path in paths:
        shutil.copytree(tmp_path / "all" / path, tmp_path / "alone" / path)
        alone |= {entry.folder for entry in publish(tmp_path / "alone", tmp_path / "single")[0]}
        shutil.rmtree(tmp_path / "alone")
    assert alone == together
    assert len(together) == len(paths)
    assert {"a--b-c", "a-b--c", "x-y"} <= together


def test_a_run_that_leads_nobody_still_has_a_summary_and_a_badge(tmp_path: Path) -> None:
    import_([PRINTED / "all_reduce_perf.txt"], tmp_path / "runs" / "nccl", None)
    made_experiments.time_to_train(tmp_path / "runs" / "trained")
    entries = {entry.folder: entry for entry in publish(tmp_path / "runs", tmp_path / "site")[0]}
    assert (entries["nccl"].title, entries["nccl"].outcomes) == ("Imported: nccl-tests", "1 foreign")
    feed = ElementTree.parse(tmp_path / "site" / "feed.xml")
    summaries = {one.text for one in feed.iter(f"{{{ATOM}}}summary")}
    assert summaries == {"1 foreign.", entries["trained"].answer}
    assert "gains most: 3.03 times on 4 devices" in entries["trained"].answer
    assert "1 foreign" in (tmp_path / "site" / "badges" / "nccl.svg").read_text()


def compared_in(folder: Path) -> str:
    """The page that compares the runs of a folder."""
    publish(folder, folder / "site")
    return (folder / "site" / "compared.html").read_text()


def test_the_latest_run_is_compared_with_one_of_its_plan(tmp_path: Path) -> None:
    made(tmp_path / "old", "pytorch", day=21)
    made(tmp_path / "other", "pytorch", "caffempi", plan="paper", day=22)
    made(tmp_path / "new", "pytorch", "caffempi", day=23)
    text = Page(compared_in(tmp_path)).text
    assert "new against old" in text
    assert "Measured only in new: 1 case caffempi/single alexnet 1 rank batch 8 imagenet-like: old has no such" in text


def test_runs_of_the_same_cases_stand_beside_each_other(tmp_path: Path) -> None:
    made(tmp_path / "before", "pytorch", day=21)
    made(tmp_path / "after", "pytorch", day=22, slower=2.0)
    source = compared_in(tmp_path)
    page = Page(source)
    assert "after is slower: 0 faster, 1 slower of 1" in page.headings
    assert "after against before" in page.text
    assert {"after/index.html", "before/index.html"} <= set(page.addresses)
    assert source.count("<figure") == 1
    assert "compared.html" in Page((tmp_path / "site" / "index.html").read_text()).addresses


def test_a_history_that_draws_fewer_cases_than_it_has_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, day in (("before", 21), ("after", 22)):
        made(tmp_path / name, "pytorch", "caffempi", day=day, repeats=2)
    for drawn, said in ((2, False), (1, True)):
        monkeypatch.setattr(compared, "DRAWN", drawn)
        source = compared_in(tmp_path)
        assert source.count("<figure") == drawn
        assert ("The first 1 of 2 cases are drawn" in Page(source).text) == said


def test_runs_of_one_moment_are_apart_on_the_axis_and_those_without_any_proof_have_no_history(tmp_path: Path) -> None:
    for name in ("one", "other"):
        made(tmp_path / "proven" / name, "pytorch")
        MadeRun(tmp_path / "unproven" / name).add(case_of())
    assert 'style="left:0.0%" class="across">2026-11-20' in compared_in(tmp_path / "proven")
    publish(tmp_path / "unproven", tmp_path / "site")
    assert (tmp_path / "site" / "other" / "index.html").is_file()
    page = tmp_path / "site" / "compared.html"
    assert not page.exists() or "<figure" not in page.read_text()


def test_runs_beside_each_other_are_known_by_their_pages(tmp_path: Path) -> None:
    for place, day in (("a", 21), ("b", 22)):
        made(tmp_path / place / "quick", "pytorch", day=day, repeats=1)
    text = Page(compared_in(tmp_path)).text
    assert "a--quick: one process, and noise shows from two on; measure more; b--quick: one process" in text
    assert str(tmp_path) not in text


def test_documentation_stands_beside_the_runs(results: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"holds no index\.html"):
        publish(results, tmp_path / "site", docs=tmp_path)
    (tmp_path / "built").mkdir()
    for folder in (tmp_path / "built", tmp_path):
        (folder / "index.html").write_text("how to")
    for site in (tmp_path, tmp_path / "site"):  # it would be copied into itself, until no name could be longer
        with pytest.raises(RequestError, match="is copied into it; name a folder elsewhere with -o"):
            publish(results, site, docs=tmp_path)
    assert not (tmp_path / "site").exists()
    publish(results, tmp_path / "site", docs=tmp_path / "built")
    assert (tmp_path / "site" / "docs" / "index.html").read_text() == "how to"
    assert "docs/index.html" in Page((tmp_path / "site" / "index.html").read_text()).addresses


def test_folders_without_runs_or_more_than_a_repository_has_are_refused(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(RequestError, match="holds no run folder"):
        runs_in(tmp_path)
    MadeRun(tmp_path / "a")
    for name in "bcd":
        (tmp_path / name).mkdir()
    monkeypatch.setattr(many, "MOST_FOLDERS", 5)
    assert runs_in(tmp_path) == [tmp_path / "a"]  # whose own folders are not looked through
    monkeypatch.setattr(many, "MOST_FOLDERS", 4)
    with pytest.raises(RequestError, match="more than 4 folders to look for runs in; name a folder below it"):
        runs_in(tmp_path)


@pytest.fixture
def served(run: MadeRun, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A run in the making, and what its server answers: (status, text, headers)."""
    with Server(tmp_path / "run", tmp_path / "site", 0) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()

        def ask(path: str, **headers: str) -> tuple[int, str, Any]:
            connection = HTTPConnection(*running.server_address[:2], timeout=30)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers

        yield SimpleNamespace(run=run, ask=ask, port=running.server_address[1])
        running.shutdown()


def test_a_run_that_has_just_begun_is_waited_for_and_shows_what_was_measured_meanwhile(served: SimpleNamespace) -> None:
    status, text, headers = served.ask("/run/index.html")
    assert (status, headers["Refresh"]) == (500, "5")
    assert "cases.json" in text
    served.run.proven(case_of())

    def last() -> str:
        return str(served.ask("/changed.js")[1].split('"')[1])

    assert "1 case," in Page(served.ask("/run/index.html")[1]).text
    shown = last()
    assert f'last === "{shown}"' in served.ask("/follow.js")[1], "an open page waits for another moment"
    served.run.proven(case_of("caffempi"))
    assert last() != shown
    assert "2 cases," in Page(served.ask("/run/index.html")[1]).text


def test_a_page_that_was_asked_for_under_another_name_is_refused(served: SimpleNamespace) -> None:
    """A strange site's page may point its own name here, and read what its browser may."""
    served.run.proven(case_of())
    for path in ("/index.html", "/changed.js", "/run/index.html"):
        assert served.ask(path, Host=f"strange.example:{served.port}")[0] == 421
        for name in (f"localhost:{served.port}", f"127.0.0.1:{served.port}", "localhost"):
            assert served.ask(path, Host=name)[0] == 200


def test_what_cannot_be_shown_is_an_answer_and_the_next_one_is_a_page(served: SimpleNamespace) -> None:
    served.run.proven(case_of())
    about = served.run.folder.path / "run.json"
    whole = about.read_bytes()
    about.write_bytes(b"[")
    served.run.folder.path.joinpath("records").touch()
    status, text, _ = served.ask("/run/index.html")
    assert status == 500
    assert "run.json is not readable JSON" in text
    about.write_bytes(whole)
    assert served.ask("/run/index.html")[0] == 200


def test_a_folder_of_systems_has_a_table_of_what_they_are_and_who_leads_at_equal_settings(tmp_path: Path) -> None:
    made(tmp_path / "all" / "node" / "old", "pytorch", day=20)
    made(tmp_path / "all" / "node" / "new", "pytorch", "caffempi", day=21)
    laptop = made(tmp_path / "all" / "laptop" / "quick", "pytorch", day=22, slower=3.0)
    laptop.add(case_of("pytorch", "resnet50"), slower=0.1)  # without a proof it is compared with nothing
    made(tmp_path / "all" / "node" / "resnet", day=20).proven(case_of("pytorch", "resnet50"))
    laptop.folder.write_host(Host(host="bench", cores=8, machine=Machine(cpu="i7", memory_bytes=2**34)))
    found, left_out = publish(tmp_path / "all", tmp_path / "site")
    assert (len(found), left_out) == (4, [])
    text = Page((tmp_path / "site" / "systems.html").read_text()).text
    assert "node leads in 1 of 1 setting 2 systems, 1 setting in common." in text
    assert "node AMD EPYC 7B13 2 1 \u00d7 NVIDIA H100 8 GiB PyTorch, Caffe-MPI style 2026-11-21 3 runs alexnet" in text
    assert "laptop i7 8 16 GiB PyTorch 2026-11-22 1 run " in text
    leads = re.findall(r"(node|laptop) (?:PyTorch|Caffe-MPI style) \S+ \S+ … \S+ (\d+) % (leads|slower)", text)
    assert [(system, verdict) for system, _, verdict in leads] == [
        ("node", "leads"),
        ("node", "slower"),
        ("laptop", "slower"),
    ]
    compared_ = Page((tmp_path / "site" / "compared.html").read_text())
    assert any(heading.startswith("node: node--new is ") for heading in compared_.headings)
    assert "laptop--quick against" not in compared_.text, "another machine's run is no later day's"


def test_a_run_that_is_not_whole_is_left_out_and_named(results: Path, tmp_path: Path, capsys) -> None:
    record = next((results / "a" / "quick" / "records").iterdir())
    record.write_text(record.read_text().replace('"repeat"', '"repeated"', 1))
    (results / "c" / "other").mkdir(parents=True)
    (results / "c" / "other" / "run.json").write_text('{"format": 99}')
    with pytest.raises(typer.Exit) as ending:
        publish_command(results, tmp_path / "site")
    assert ending.value.exit_code == 1
    page = Page((tmp_path / "site" / "index.html").read_text())
    assert "2 runs left out: not whole, or altered" in page.headings
    assert f"a/quick records/{record.name}: " in page.text
    assert "format 99" in page.text
    assert {path.name for path in (tmp_path / "site").iterdir() if path.is_dir()} == {"b--quick", "badges"}
    assert f"left out: {results / 'a' / 'quick'}: records/{record.name}: " in capsys.readouterr().err
