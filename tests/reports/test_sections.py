"""What a run's pages say: computed titles for every verdict, and the data that charts and tables draw."""

import re
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise, product

import pytest

from stagebench.reports.charts.html import asset
from stagebench.reports.charts.lines import Line, Lines
from stagebench.reports.charts.rows import STAGES as SHADES
from stagebench.reports.charts.rows import Scale, linear, logarithmic, stack, top
from stagebench.reports.exports.sheet import sheet
from stagebench.reports.exports.write import charts_of
from stagebench.reports.pages.communication import aggregation
from stagebench.reports.pages.run import Report
from stagebench.reports.pages.scaling import headline as scaled_headline
from stagebench.reports.pages.serving import PARTS as SERVED
from stagebench.reports.pages.stages import headline as staged_headline
from stagebench.reports.site.build import render, sections_of, write
from stagebench.suite.analysis.best import contests
from stagebench.suite.analysis.budget import STAGES
from stagebench.suite.analysis.panels import by_group, for_charts
from stagebench.suite.analysis.standing import tally
from stagebench.suite.analysis.stats import Interval
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.analysis.wording import in_words, number, share
from stagebench.suite.errors import StoreError
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.pass_kinds import LOADS
from stagebench.workloads.networks.gpt import gpt_char
from stagebench.workloads.networks.resnet import resnet50
from tests.reports.made_run import MadeRun, case_of, everything
from tests.reports.parsed import Page

pytestmark = pytest.mark.xdist_group("sections")  # its page is made once


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return everything(tmp_path_factory.mktemp("page") / "run")


@pytest.fixture(scope="module")
def source(folder):
    return render(folder, summarise(folder))


@pytest.fixture(scope="module")
def page(source):
    return Page(source)


@pytest.fixture(scope="module")
def charts(folder):
    return dict(charts_of(folder))


def report_of(run):
    return Report(run.folder, summarise(run.folder))


def page_of(run):
    return Page(render(run.folder, summarise(run.folder)))


def title_of(run):
    return sections_of(report_of(run))["index.html"][0].title


@pytest.mark.parametrize(
    ("slower", "repeats", "title"),
    [
        ((1.0, 1.5, 2.0), 3, "PyTorch leads on alexnet"),
        ((1.0, 0.944, 2.0), 3, "PyTorch and Caffe-MPI style share the lead on alexnet"),
        ((1.0, 1.5, 2.0), 1, "No verdict yet"),
    ],
)
def test_the_title_is_the_verdict_of_one_comparison(run, slower, repeats, title):
    for adapter, factor in zip(("pytorch", "caffempi", "mxnet"), slower, strict=True):
        run.proven(case_of(adapter), repeats=repeats, slower=factor)
    assert title_of(run).startswith(title)


def test_the_title_counts_the_comparisons_that_somebody_leads(run):
    for workload, slower in (("alexnet", 2.0), ("resnet50", 2.0), ("googlenet", 0.1)):
        run.proven(case_of("pytorch", workload))
        run.proven(case_of("caffempi", workload), slower=slower)
    title, also = tally(report_of(run).groups)
    assert (title, also) == ("PyTorch leads in 2 of 3 comparisons", "Caffe-MPI style in 1.")


def test_a_single_row_is_its_speed_and_nothing_comparable_says_so(tmp_path):
    one = MadeRun(tmp_path / "one")
    one.proven(case_of())
    assert title_of(one) == f"PyTorch does {number(one.only().speed)} samples/s"
    apart = MadeRun(tmp_path / "apart")
    for batch in (8, 16):
        apart.proven(case_of(batch=batch))
    assert title_of(apart).endswith(" samples/s; nothing to compare")
    unproven = MadeRun(tmp_path / "unproven")
    unproven.add(case_of())
    assert title_of(unproven) == "Nothing may be compared"


def test_a_network_over_tokens_shows_tokens_per_second_beside_samples(run):
    for adapter in ("pytorch", "caffempi"):
        for ranks in (1, 2):
            run.proven(case_of(adapter, "gpt_char", ranks, graph_digest=gpt_char().digest))
    report = report_of(run)
    shown = Page(render(run.folder, report.rows)).text
    assert "Case samples/s per device tokens/s" in shown
    assert "Case samples/s 95 % interval tokens/s of the fastest" in shown  # all cases
    assert "Case place samples/s tokens/s speed-up" in shown
    exported = sheet(run.folder)
    for row, line, words in zip(report.rows, exported.lines, exported.paper[1:], strict=True):
        rate = number(64 * row.rate.value)
        assert f"{number(row.rate_per_device.value)} {rate} ".replace("\u202f", " ") in shown
        assert line["tokens_per_second"] == 64 * row.rate.value
        assert words[exported.paper[0].index("tokens/s")] == rate


@pytest.mark.parametrize(("plan", "title"), [("quick", "lead"), ("paper", "lead"), ("prediction", "off by")])
def test_the_title_answers_the_plan(tmp_path, plan, title):
    run = MadeRun(tmp_path / "run", plan)
    for adapter in ("pytorch", "caffempi"):
        for ranks in (1, 2, 4):
            run.proven(case_of(adapter, "resnet50", ranks, graph_digest=resnet50().digest))
    assert title in title_of(run)
    assert len(title_of(run).split()) <= 12


def test_titles_of_stages_and_scaling_leave_out_what_is_not_known(folder):
    rows = [row for row in summarise(folder) if row.budget and row.sound]
    assert staged_headline(rows) == (f"Backward takes longest in all {len(rows)} cases", "")
    rows[0].marks.append("large residual")
    title, also = staged_headline(rows)
    assert title == f"Backward takes longest in all {len(rows) - 1} cases"
    assert also.startswith("1 more case")
    scaled = [row for row in summarise(folder) if row.scaling]
    assert scaled_headline(scaled)[0] == "All 4 cases gain from 4 devices"
    slow = [replace(row, scaling=replace(row.scaling, efficiency=Interval(0.1, 0.05, 0.2, 3))) for row in scaled]
    assert scaled_headline(slow)[0] == "No case gains from 4 devices"


def test_places_lie_on_their_tracks_and_no_wide_interval_hides_others():
    scale = linear(7.3)
    assert scale.ticks[0] == 0
    assert [scale.at(value) for value in (-1.0, 0.0, 100.0)] == [0.0, 0.0, 100.0]
    assert 0 < scale.at(3.0) < scale.at(7.3) <= 100
    log = logarithmic(0.02, 40.0)
    assert (log.ticks[0], log.ticks[-1]) == (0.01, 100.0)
    assert log.at(0.01) == 0.0
    drawn = str(stack(Scale(0, 10, ()), {"forward": 4.0, "backward": 3.0, "io": -1.0}, 6.0))
    assert [float(width) for width in re.findall(r'width="([\d.]+)%"', drawn)] == [40.0, 30.0, 10.0]
    assert 'class="saved' in drawn, "beyond the real step"
    sure, lost = Interval(100.0, 90.0, 110.0, 3), Interval(80.0, 0.5, 90_000.0, 2)
    assert top([sure, sure]) == 110.0
    assert top([sure, lost]) == 160.0


def test_names_at_the_ends_of_twenty_lines_do_not_touch():
    lines = [Line(f"series {index}", [1, 2], [1, 2 + index / 1000]) for index in range(20)]
    chart = Lines("", "", lines, "x", "y")
    places = [place for _, place, _ in chart._ends(chart.scales()[1], 20 * 15 + 30)]
    assert len(places) == 20
    assert min(after - before for before, after in pairwise(places)) > 4
    assert "series 19" in chart.svg()
    assert chart.html().count('<th scope="row">series') == 20, "for a reader who does not see the lines"


def test_charts_need_no_style_sheet_and_draw_outliers_and_ideals(charts):
    assert len(charts) > 20
    for chart in charts.values():
        drawn = chart.svg()
        assert drawn.startswith("<svg")
        assert "var(" not in drawn
    boxes = [entry.track for name, chart in charts.items() if name.startswith("steps-") for entry in chart.entries]
    assert len(boxes) >= 12
    assert all('class="dot"' in track for track in boxes), "a hiccup in every simulated process"
    multiples = [chart for name, chart in charts.items() if name.startswith("scaling-") and isinstance(chart, Lines)]
    ideals = [line for chart in multiples for line in chart.lines if line.kind == "ideal"]
    assert all(list(line.x) == [1, 2, 4] for line in ideals)
    assert all(list(line.y) == pytest.approx([line.y[0] * count for count in (1, 2, 4)]) for line in ideals)
    predicted = [line for chart in multiples for line in chart.lines if line.kind.startswith("predicted")]
    assert {tuple(line.x) for line in predicted} == {(2, 4)}


def test_strong_scaling_has_its_own_baseline(run):
    for ranks in (1, 2, 4):
        run.proven(case_of(ranks=ranks, batch=8 // ranks, scaling="strong"))
    (chart,) = [chart for name, chart in charts_of(run.folder) if name.startswith("scaling-")]
    (ideal,) = [line for line in chart.lines if line.kind == "ideal"]
    (measured,) = [line for line in chart.lines if line.kind == "lead"]
    assert list(ideal.y) == pytest.approx([measured.y[0] * devices for devices in (1, 2, 4)])


def test_a_model_that_is_wrong_says_so_and_one_that_nothing_tests_says_that(run):
    resnet = partial(case_of, "pytorch", "resnet50", graph_digest=resnet50().digest)

    run.proven(resnet())
    run.proven(resnet(2))
    assert "nothing says how good its predictions are" in page_of(run).text
    run.proven(resnet(4))
    assert "The model is wrong here" not in page_of(run).text
    run.changed(resnet(4), taking_twice_as_long)
    assert page_of(run).text.count("The model is wrong here: 1 of 1 predictions is more than 10 % away") == 2, (
        "on Scaling, too"
    )
    lines = [line for _, chart in charts_of(run.folder) if isinstance(chart, Lines) for line in chart.lines]
    assert [line.kind for line in lines if line.kind.startswith("predicted")] == ["predicted bad"]
    run.changed(resnet(2), lambda record: [rank["passes"].pop("comm_only") for rank in record["ranks"]])
    assert "nothing says how fast the link of pytorch/ddp resnet50" in page_of(run).text


def taking_twice_as_long(record):
    for rank in record["ranks"]:
        native = rank["passes"]["native"]
        native |= {"wall_s": 2 * native["wall_s"], "step_s": [2 * seconds for seconds in native["step_s"]]}


@pytest.mark.parametrize(
    ("options", "processes", "found"),
    [
        ((), 1, "The run is incomplete"),
        (("--for", "17min"), 1, "--for 17min, is over"),
        (("--for=17min",), 1, "--for 17min, is over"),
        (("--for", "17min"), 2, None),
    ],
)
def test_a_run_that_ended_when_its_time_was_up_is_no_broken_one(tmp_path, options, processes, found):
    made = MadeRun(tmp_path / "run", options=options)
    made.proven(case_of(sampling=Sampling(processes=2)), repeats=processes)
    text = page_of(made).text
    assert ("the same command measures the others" in text) == (found is not None)
    assert (found or "") in text


def test_a_large_group_shows_its_fastest_rows_and_folds_the_others(run):
    for seed in range(12):
        run.proven(case_of(seed=seed), repeats=2, slower=1 + seed)
    chart = next(chart for name, chart in charts_of(run.folder) if name.startswith("overview-"))
    assert len(chart.entries) == 12
    assert ">4 more</summary>" in chart.html()


def test_rows_of_one_strategy_are_named_by_what_differs(run):
    for kernels in ("on", "off"):
        run.proven(case_of(knobs={"onednn": kernels}), repeats=2)
    (group,) = report_of(run).groups
    assert {name.detail for name in group.names} == {"onednn=on", "onednn=off"}


def test_a_run_of_one_process_a_case_says_why_nobody_leads_and_what_to_do(run):
    sampling = Sampling(quick=True, steps=20, seconds=2.0, processes=1)
    for adapter in ("pytorch", "caffempi"):
        run.proven(case_of(adapter, sampling=sampling), repeats=1)
    source = render(run.folder, summarise(run.folder))
    assert "add rounds with --until 3%" in Page(source).text
    assert 'class="lead"' not in source, "nothing is blue"
    assert "bubble</span>" not in source, "a key of what no chart shows"
    run.proven(case_of(ranks=2), repeats=1)
    text = page_of(run).text
    assert text.count("(rounds of one process)") == 2, "exposed and hidden communication"
    assert text.count("(steps of one process)") == 1, "waiting for the last rank"


def test_what_is_hidden_is_drawn_only_where_it_is_determined(folder):
    def drawn(report):
        section = aggregation(report)
        assert section
        charts = [chart for name, chart in report.charts.items() if name.startswith("aggregation-")]
        return [(entry.value, 'class="hidden' in entry.track) for chart in charts for entry in chart.entries]

    found = drawn(Report(folder, summarise(folder)))
    assert any(hidden for _, hidden in found)
    assert not any("?" in value for value, _ in found)
    rows = summarise(folder)
    for row in rows:
        row.processes = [with_wide_hidden(process) for process in row.processes]
        row.__dict__.pop("budget", None)  # which has been asked for
    found = drawn(Report(folder, rows))
    assert not any(hidden for _, hidden in found)
    assert all(value.endswith(" + ?") for value, _ in found)


def test_an_exchange_that_was_not_measured_has_neither_claim_nor_chart(folder):
    rows = summarise(folder)
    for row in rows:
        row.processes = [without_communication(process) for process in row.processes]
        row.__dict__.pop("budget", None)
    report = Report(folder, rows)
    section = aggregation(report)
    assert section.title == "How long a step waits for the exchange was not measured"
    assert not any(name.startswith("aggregation-") for name in report.charts)


def without_communication(process):
    """A process whose plan left the passes `compute_only` and `comm_only` out."""
    if process.budget is None:
        return process
    nothing = {"communication": None, "exposed_communication": None, "hidden_communication": None}
    return replace(process, budget=replace(process.budget, **nothing))


def with_wide_hidden(process):
    budget = process.budget
    if budget is None or budget.hidden_communication is None:
        return process
    wide = replace(budget.hidden_communication, value=(process.repeat - 1) * budget.comm_only)
    return replace(process, budget=replace(budget, hidden_communication=wide))


def test_nothing_is_fetched_and_names_from_a_plan_cannot_become_markup(page, source, run):
    inside = [address for address in page.addresses if address != "best.toml"]  # written beside the page
    assert all(address.startswith("#") for address in inside)
    assert {address[1:] for address in inside} <= set(page.ids)
    style = source[source.index("<style>") : source.index("</style>")]
    assert not re.search(r"@import|url\((?!#)", style)
    assert "default-src 'none'" in source
    run.proven(case_of(data='/x/</script><img src="http://e.example/x">'))
    run.proven(case_of("caffempi", knobs={"note": "<b>x"}, data='/x/</script><img src="http://e.example/x">'))
    assert all(address.startswith("#") for address in page_of(run).addresses)


@pytest.mark.parametrize(
    "words",
    [
        "Two trainers, real images",
        "AMD EPYC 7B13, 2 cores, 8.0 GiB",
        "torch 2.13.0",
        "56 of 63 processes",
        "3 of 20 not proven",
        "conv1.weight",
        "gradient of conv1.weight is off by 0.04",
        "proofs were switched off for this run",
        "rank 0 ended with signal 9 in the native pass",
        "ddp wants one process per device",
        "not measured",
        "stagebench run plan.toml -o again",
        'title = "Two trainers, real images"',
        "b" * 64,
        "share the lead",
        "60 965 224",
        "static_graph no",
        "Accuracy by seconds of training",
        "0.9850",
        "2.0e-07",
        "4.50 3.00 … 6.00 0.98 6 of 6 2 4.50 3.00 … 6.00",
        "2 devices; layers: timed one by one; link: comm_only on 2 devices, as if it had no latency",
    ],
)
def test_a_reader_finds(page, words):
    assert words in page.text


def test_tables_hold_what_the_charts_draw_and_what_exchanging_adds(page, folder):
    rows = summarise(folder)
    panels = for_charts(by_group(row for row in rows if row.rates))
    assert all(len({row.case.adapter for row in panel.rows}) == 1 for panel in panels if panel.warning)
    assert all(row.sound for panel in panels if not panel.warning for row in panel.rows)
    for row in rows:
        if row.rate:
            assert f"{row.rate.value:.3g}" in page.text
        if row.budget:
            assert all(
                number(1000 * getattr(row.budget, stage)) in page.text for stage in STAGES if getattr(row.budget, stage)
            )
    scaled = [row for row in rows if row.scaling]
    assert len(scaled) == 8
    for row in scaled:
        found = row.scaling.efficiency
        ends = f"{share(found.low)} … {share(found.high)}"
        speed_up = number(found.value * row.case.placement.device_count)
        assert f"{speed_up} {share(found.value)} {ends} {share(row.budget.exposed_share)}" in page.text


def test_unproven_rows_are_in_no_chart_and_say_why(page, charts):
    assert "no proof: nothing shows that it trains the same network: reference/single mnist_small" in page.text
    drawn = [
        entry.of
        for name, chart in charts.items()
        if not isinstance(chart, Lines) and not name.startswith("proofs")
        for entry in chart.entries
    ]
    assert "pytorch" in drawn
    assert "reference" not in drawn


def test_layers_that_matter_have_a_line_and_the_longest_is_the_darkest(source):
    heat = source[source.index('<section id="layers"') :]
    heat = heat[: heat.index("</table>")]
    assert re.findall(r'<th scope="row">(\w+)', heat) == ["conv1", "fc6", "1"], "one other layer"
    depths = [int(depth) for depth in re.findall(r"--depth:(\d+)%", heat)]
    assert max(depths) == 45
    assert depths.index(45) > depths.index(min(depths))


def lightness(colour):
    """L* of CIELAB."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear_light = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 116 * sum(map(lambda share, part: share * part, (0.2126, 0.7152, 0.0722), linear_light)) ** (1 / 3) - 16


def test_parts_that_meet_in_a_bar_differ_on_black_and_white_paper():
    light, _, _ = asset("charts.css").partition("@media")
    shades = {name: lightness(colour) for name, colour in re.findall(r"--(\w+): (#\w{6});", light)}
    spared = {"h2d", "bubble", "communication"}  # parts that a bar may lack
    ends = [(at, to) for at, to in combinations(range(len(SHADES)), 2) if set(SHADES[at + 1 : to]) <= spared]
    meeting = [(SHADES[at], SHADES[to]) for at, to in ends] + [*pairwise(shade for _, shade in SERVED.values())]
    alike = {pair: abs(shades[pair[0]] - shades[pair[1]]) for pair in meeting}
    assert len(alike) > 10
    assert {pair: apart for pair, apart in alike.items() if apart < 10} == {}


def test_an_empty_run_still_has_a_page(run, tmp_path):
    run.refuse(case_of(), None, "")
    (run.folder.path / "plan.toml").unlink()
    (run.folder.path / "hosts" / "bench.json").unlink()
    page = Page(write(run.folder, tmp_path / "page", single=True).read_text())
    assert "0 of 3 processes" in page.text
    assert "No case has a speed yet" in page.headings
    assert "lost its plan.toml" in page.text


def test_a_reason_that_several_cases_share_is_there_once(run):
    for ranks in (2, 4):
        run.refuse(case_of(ranks=ranks), "unavailable", "there is no mpiexec; install it")
    page = page_of(run)
    assert page.text.count("there is no mpiexec; install it") == 1
    assert "unavailable: pytorch (2 cases)" in page.text


def test_passes_left_out_leave_no_stages(run):
    case = run.proven(case_of(ranks=2))

    def native_alone(record):
        for rank in record["ranks"]:
            rank["passes"] = {"native": rank["passes"]["native"]}

    run.changed(case, native_alone)
    page = page_of(run)
    assert "No case has both its native and its staged pass" in page.headings
    assert "samples/s" in page.text


def test_the_bubble_of_a_network_in_parts_has_a_column(page, run):
    assert "backward exchange update" in page.text, "no column where every device holds a whole network"
    case = run.proven(case_of(ranks=2, strategy="pipeline"))

    def bubbling(record):
        for rank in record["ranks"]:
            stages = rank["passes"]["staged"]["stage_s"]
            stages["bubble"] = [0.0123] * len(stages["forward"])

    run.changed(case, bubbling)
    found = page_of(run)
    assert "backward bubble exchange update" in found.text
    assert " 12.3 " in found.text


def test_inference_has_a_page_of_latencies_and_of_who_leads_where(run):
    for adapter, batch in product(("pytorch", "caffempi"), (1, 8)):
        sampling = Sampling(steps=100 if batch == 1 else 700, processes=3)
        run.proven(case_of(adapter, "alexnet", strategy="inference", batch=batch, passes=LOADS, sampling=sampling))
    report = report_of(run)
    few, many = report.rows[:2]
    assert few.latency("single_stream", 0.9)
    assert not few.latency("single_stream", 0.99)
    assert many.latency("single_stream", 0.99).value >= many.latency("single_stream", 0.9).value
    assert not many.to_dict()["latency_seconds"].keys() ^ {"single_stream", "multi_stream"}
    found = Page(render(run.folder, report.rows))
    assert re.search("A single sample is answered within .* to .* ms", found.text)
    assert "offline, samples/s 1 sample, p90, ms 1 sample, p99, ms 8 samples, p99, ms" in found.text
    assert "Framework batch 1, 1 thread batch 8, 1 thread" in found.text
    assert all(len(panel.rows) == 2 for panel in report.groups)


def test_training_and_inference_are_never_compared(run):
    for case in (case_of(), case_of(ranks=2), case_of(strategy="inference", passes=LOADS)):
        run.proven(case)
    report = report_of(run)
    assert {row.speed > 0 for row in report.rows} == {True}
    assert not report.groups
    assert [row.scaling and row.scaling.baseline_id for row in report.rows] == [None, report.rows[0].id, None]
    assert {len({best.row.case.infers for best in contest.winners}) for contest in contests(report.rows)} <= {1}


def test_a_folder_that_cannot_be_made_is_named(folder, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StoreError, match="name another one with -o"):
        write(folder, blocked / "page")


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (True, "yes"),
        (1.3377e-05, "1.3e-05"),
        ({"a": [1, 2], "b": "x"}, "a 1, 2, b x"),
        (["group"] * 100, ", ".join(["group"] * 22) + ", … (100 in all)"),
    ],
)
def test_notes_are_told_in_words(note, words):
    assert in_words(note).replace("\u2212", "-") == words
