import re
from dataclasses import replace
from functools import partial

import pytest

from reports.charts import aggregation
from reports.figure import colour, from_zero
from reports.heat import heat_maps
from reports.lines import LEGEND_ROW, Line, lines_figure
from reports.overview import chart, groups_of, proven, sentence
from reports.panels import for_charts
from reports.scaling import scaling
from reports.site import render, write, write_single
from reports.text import in_words, number, share
from suite.analysis.budget import STAGES
from suite.analysis.stats import Interval
from suite.analysis.summary import summarise
from suite.errors import StoreError
from suite.worker.case_parts import Sampling
from tests.reports.made_run import MadeRun, case_of, everything
from tests.reports.parsed import Page
from workloads.networks.resnet import resnet50


def test_layers_are_a_line_each_and_the_longest_is_the_darkest(folder):
    maps = {found.panel.title: found for found in heat_maps(for_charts(summarise(folder)))}
    found = maps["alexnet on imagenet-like"]
    strategies = [name.split(" ")[0].partition("/")[2] for name in found.names]
    assert strategies == ["single", "data_parallel", "data_parallel"]
    assert [line[:2] for line in found.lines] == [("conv1", "conv"), ("relu1", "relu"), ("fc6", "dense")]
    assert [line[2][0].seconds for line in found.lines] == pytest.approx([0.039, 0.0013, 0.065])
    assert "55%" in found.lines[2][2][0].shade
    assert "mnist_small on digits.npz" not in maps


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return everything(tmp_path_factory.mktemp("page") / "run")


@pytest.fixture(scope="module")
def source(folder):
    return render(folder, summarise(folder))


@pytest.fixture(scope="module")
def page(source):
    return Page(source)


def traces(page, kind):
    return [trace for figure in page.figures for trace in figure["data"] if trace["type"] == kind]


def test_a_prediction_begins_where_it_was_fitted_and_goes_on_to_larger_placements(page):
    predicted = [trace for trace in traces(page, "scatter") if trace.get("marker", {}).get("symbol") == "diamond-open"]
    assert {tuple(trace["x"]) for trace in predicted} == {(2, 4)}
    assert all(trace["customdata"][0] == "fitted to" and "%" in trace["customdata"][1] for trace in predicted)


def text_of(made):
    page = render(made.folder, summarise(made.folder))
    return " ".join(re.sub("<[^>]*>", "", page[page.index('<section id="predicted"') :]).split())


def test_an_interval_of_one_process_says_what_it_comes_from(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.proven(case_of(ranks=2), repeats=1)
    text = Page(render(made.folder, summarise(made.folder))).text
    assert text.count("(rounds of one process)") == 2, "exposed and hidden communication"
    assert text.count("(steps of one process)") == 1, "waiting for the last rank"


def test_strong_scaling_has_its_own_baseline_and_ideal_line(tmp_path):
    made = MadeRun(tmp_path / "run")
    for ranks in (1, 2, 4):
        made.proven(case_of(ranks=ranks, batch=8 // ranks, scaling="strong"))
    page = Page(render(made.folder, summarise(made.folder)))
    assert "Strong scaling: all devices share one batch" in page.text
    lines = [trace for trace in traces(page, "scatter") if list(trace["x"]) == [1, 2, 4]]
    (ideal,) = [trace for trace in lines if trace["line"].get("dash") == "dot"]
    (measured,) = [trace for trace in lines if trace["mode"] == "lines+markers" and "error_y" in trace]
    assert ideal["y"] == pytest.approx([measured["y"][0] * devices for devices in (1, 2, 4)])


def test_a_model_that_is_wrong_says_so_and_one_that_nothing_tests_says_that(tmp_path):
    made = MadeRun(tmp_path / "run")
    resnet = partial(case_of, "pytorch", "resnet50", graph_digest=resnet50().digest)
    made.proven(resnet())
    made.proven(resnet(2))
    assert "nothing says how good its predictions are" in text_of(made)
    made.proven(resnet(4))
    right = text_of(made)
    assert "Measured beside predicted" in right
    assert "The model is wrong here" not in right
    made.changed(resnet(4), taking_twice_as_long)
    wrong = "The model is wrong here: 1 of 1 predictions is more than 10 % away"
    assert wrong in text_of(made)
    page = Page(render(made.folder, summarise(made.folder)))
    assert page.text.count(wrong) == 2, "beside the charts of scaling, too"
    (drawn,) = (one for one in traces(page, "scatter") if one.get("marker", {}).get("symbol") == "diamond-open")
    assert drawn["marker"]["color"][-1] == "--bad"
    assert drawn["customdata"][-1].endswith("%: the model is wrong")
    made.changed(resnet(2), lambda record: [rank["passes"].pop("comm_only") for rank in record["ranks"]])
    why = text_of(made)
    assert "Not predicted" in why
    assert "nothing says how fast the link of pytorch/ddp resnet50" in why


def taking_twice_as_long(record):
    for rank in record["ranks"]:
        native = rank["passes"]["native"]
        native |= {"wall_s": 2 * native["wall_s"], "step_s": [2 * seconds for seconds in native["step_s"]]}


@pytest.mark.parametrize(
    ("options", "processes", "found"),
    [
        ((), 1, "Incomplete: 1 of 2 processes have been measured."),
        (("--for", "17min"), 1, "1 of 2 processes have been measured in the time that the command gave, --for 17min."),
        (("--for=17min",), 1, "1 of 2 processes have been measured in the time that the command gave, --for 17min."),
        (("--for", "17min"), 2, None),
    ],
)
def test_a_run_that_ended_when_its_time_was_up_is_no_broken_one(tmp_path, options, processes, found):
    made = MadeRun(tmp_path / "run", options=options)
    made.proven(case_of(sampling=Sampling(processes=2)), repeats=processes)
    text = " ".join(re.sub("<[^>]*>", "", render(made.folder, summarise(made.folder))).split())
    assert ("processes have been measured" in text) == (found is not None)
    assert (found or "") in text


def test_a_large_group_has_its_fastest_rows_in_words_and_in_the_chart(tmp_path):
    made = MadeRun(tmp_path / "run")
    for seed in range(12):
        made.proven(case_of(seed=seed), repeats=2, slower=1 + seed)
    (group,) = groups_of(summarise(made.folder))
    assert sentence(group).endswith("; 3 more are behind them.")
    (trace,) = chart([group], ["pytorch"])["data"]
    assert len(trace["x"]) == 8


def test_whoever_is_drawn_against_its_leader_is_named_beside_its_interval(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.proven(case_of("caffempi"), repeats=2, slower=2.0)
    for strategy, slower in (("ddp", 1.0), ("fsdp", 5.0)):
        made.proven(case_of("pytorch", strategy=strategy), repeats=2, slower=slower)
    groups = groups_of(summarise(made.folder))
    figure = chart(groups, ["caffempi", "pytorch"])
    drawn = [note for note in figure["layout"]["annotations"] if note["xref"] == "x"]
    named = {note["text"]: (note["xanchor"], note["y"]) for note in drawn}
    places = dict.fromkeys(place for trace in figure["data"] for place in trace["y"])
    assert {place for _, place in named.values()} == set(places)
    assert {name: anchor for name, (anchor, _) in named.items()} == {
        "pytorch/ddp": "right",
        "caffempi": "left",
        "pytorch/fsdp": "left",
    }


def test_rows_of_one_strategy_are_named_by_what_differs(tmp_path):
    made = MadeRun(tmp_path / "run")
    for kernels in ("on", "off"):
        made.proven(case_of(knobs={"onednn": kernels}), repeats=2)
    figure = chart(groups_of(summarise(made.folder)), ["pytorch"])
    named = {note["text"] for note in figure["layout"]["annotations"] if note["xref"] == "x"}
    assert len(named) == 2
    assert all(("on" in name or "off" in name) and name.startswith("pytorch/single") for name in named)


def test_a_name_that_a_phone_has_no_room_for_beside_an_interval_stands_above_it(tmp_path):
    made = MadeRun(tmp_path / "run")
    for strategy, slower in (("ddp", 1.0), ("parameter_server" * 4, 1.8)):
        made.proven(case_of("pytorch", strategy=strategy), repeats=2, slower=slower)
    figure = chart(groups_of(summarise(made.folder)), ["pytorch"])
    high, low = figure["data"][0]["y"]
    ddp, server = (note for note in figure["layout"]["annotations"] if note["xref"] == "x")
    assert (ddp["y"], ddp["xanchor"]) == (high, "right")
    assert (server["x"], server["xanchor"], len(server["text"])) == (0, "left", 50)
    assert low < server["y"] < high


def test_the_first_screen_tells_what_its_proofs_say(tmp_path):
    made = MadeRun(tmp_path / "run")
    assert proven([]) == ""
    for adapter in ("pytorch", "caffempi"):
        made.proven(case_of(adapter), repeats=2)
    rows = summarise(made.folder)
    told = (
        "Each of the 2 rows that are compared is proven to train its network as the oracle does. The error nearest to "
        "its bound is 3.1e-06, where 1.0e-05 is allowed."
    )
    assert proven(groups_of(rows)) == told
    assert told in Page(render(made.folder, rows)).text


def test_a_run_of_one_process_a_case_says_why_nobody_leads_and_what_to_do(tmp_path):
    sampling = Sampling(quick=True, steps=20, seconds=2.0, processes=1)
    made = MadeRun(tmp_path / "run")
    for adapter in ("pytorch", "caffempi"):
        made.proven(case_of(adapter, sampling=sampling), repeats=1)
    rows = summarise(made.folder)
    (group,) = groups_of(rows)
    assert "samples/s, without a verdict; caffempi/single reaches" in sentence(group)
    source = render(made.folder, rows)
    page = Page(source)
    assert "</i>forward" in source
    assert "</i>bubble" not in source, "a key of what no chart shows"
    assert "begun 2026-11-20 10:00 UTC" in page.text
    assert "No verdict: a verdict needs two rounds or more" in page.text
    assert "with --until 3% adds rounds" in page.text


def test_what_an_exchange_adds_to_an_iteration_and_what_is_hidden_is_drawn(page, folder):
    budgets = [row.budget for row in summarise(folder) if row.budget and row.several_devices]
    for name, field in (("exposed", "communication"), ("hidden", "hidden")):
        drawn = [value for trace in traces(page, "bar") if trace.get("name") == name for value in trace["x"]]
        assert sorted(drawn) == pytest.approx(sorted(1000 * getattr(budget, field) for budget in budgets))


def test_scaling_says_speed_up_efficiency_and_what_exchanging_adds(page, folder):
    scaled = [row for row in summarise(folder) if row.scaling]
    assert len(scaled) == 8
    for row in scaled:
        found = row.scaling.efficiency
        ends = f"{share(found.low)} … {share(found.high)}"
        speed_up = number(found.value * row.case.placement.device_count)
        assert f"{speed_up} {share(found.value)} {ends} {share(row.budget.exposed_share)}" in page.text


def test_a_scaling_line_has_the_colour_of_its_adapter(folder):
    rows = summarise(folder)
    adapters = ["reference", *dict.fromkeys(row.case.adapter for row in rows)]
    figures = filter(None, (scaling(panel, adapters) for panel in for_charts(rows)))
    drawn = [(one["name"], one["line"]["color"]) for figure in figures for one in figure["data"] if one.get("name")]
    assert drawn
    for name, shade in drawn:
        assert shade == colour(adapters.index(name.partition("/")[0]))


def test_an_interval_that_knows_nothing_hides_no_others():
    sure, lost = Interval(100.0, 90.0, 110.0, 3), Interval(80.0, 0.5, 90_000.0, 2)
    assert from_zero([sure, sure]) == {"rangemode": "tozero"}
    assert from_zero([sure, lost]) == {"range": [0, 160.0]}


def test_nothing_is_fetched(page, source):
    inside = [address for address in page.addresses if address != "best.toml"]  # written beside the page
    assert all(address.startswith("#") for address in inside)
    assert {address[1:] for address in inside} <= set(page.ids)
    style = source[source.index("<style>") : source.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in source


@pytest.mark.parametrize(
    "words",
    [
        "Two trainers, real images",
        "AMD EPYC 7B13, 2 cores, 8.0 GiB",
        "torch 2.13.0",
        "56 of 63 processes",
        "samples that all ranks consumed ÷ wall time of the slowest rank",
        "alexnet · 2 ranks: pytorch/ddp leads with",
        "= staged ÷ native",
        "({0.steps} steps, {0.seconds:g} s, {0.processes} processes, {0.breakdowns} of".format(Sampling()),
        "quick 116 94.1",
        "between ranks the transfer of activations and their gradients is in it",
        "fc6",
        "conv1.weight",
        "gradient of conv1.weight is off by 0.04",
        "proofs were switched off for this run",
        "rank 0 ended with signal 9 in the native pass",
        "ddp wants one process per device",
        "not measured",
        "stagebench run plan.toml -o again",
        'title = "Two trainers, real images"',
        "b" * 64,
        "shares the lead",
        "60 965 224",
        "static_graph no",
        "alexnet on photographs: accuracy by seconds of training",
        "0.9850",
        "2.0e-07",
        "4.50 3.00 … 6.00 0.98 6 of 6 2 4.50 3.00 … 6.00",
        "2 devices; layers: timed one by one; link: comm_only on 2 devices, as if it had no latency",
    ],
)
def test_a_reader_finds(page, words):
    assert words in page.text


def test_the_runner_ups_loss_is_named_only_where_stages_add_up_else_its_own_longest_stage(folder):
    group = next(group for group in groups_of(summarise(folder)) if "mostly because of" in sentence(group))
    fastest = group.rows[0]
    fastest.marks.append("large residual")
    assert "mostly because of" not in sentence(group)
    why = f"(stages cannot be compared: large residual of {group.names[0]})"
    assert re.search(rf" and spends most in [a-z ]+: [\d.]+ of [\d.]+ ms {re.escape(why)}", sentence(group))
    for row in group.rows[1:]:
        row.marks.append("large residual")
    why = r"ms that its stages take one by one \(stages cannot be compared: large residual of .* and .*\)"
    assert re.search(why, sentence(group))


def test_what_is_hidden_is_drawn_only_where_it_is_determined(folder):
    def panel():
        return next(found for found in for_charts(summarise(folder)) if any(row.several_devices for row in found.rows))

    drawn, named = exchanged(panel())
    assert any(drawn)
    assert not any("?" in name for name in named)
    open_ = panel()
    for row in open_.rows:
        row.processes = [with_wide_hidden(process) for process in row.processes]
        row.__dict__.pop("budget", None)  # which has been asked for
    drawn, named = exchanged(open_)
    assert not any(drawn)
    assert all(" ms + ?" in name for name in named)


def exchanged(panel):
    """(what is drawn as hidden, what is written beside)."""
    figure = aggregation(panel)
    return figure["data"][1]["x"], [one["text"] for one in figure["layout"]["annotations"] if one["x"] == 1]


def with_wide_hidden(process):
    budget = process.budget
    if budget is None or budget.hidden_communication is None:
        return process
    wide = replace(budget.hidden_communication, value=(process.repeat - 1) * budget.comm_only)
    return replace(process, budget=replace(budget, hidden_communication=wide))


@pytest.mark.parametrize("mode", ["lines", "lines+markers"])
def test_twenty_series_look_different_and_all_stand_in_the_legend(mode):
    figure = lines_figure([Line(f"series {index}", [1, 2], [1, 2]) for index in range(20)], "x", "y", mode)
    looks = {(one["line"]["color"], one["line"]["dash"], one["marker"]["symbol"]) for one in figure["data"]}
    marked = {(one["line"]["color"], one["marker"]["symbol"]) for one in figure["data"]}
    assert len(looks) == len(marked) == 20
    assert figure["layout"]["legend"]["maxheight"] > 20 * LEGEND_ROW
    assert len({colour(index) for index in range(10)}) == 10  # adapters


def uneven(process, factor):
    budget = process.budget
    scaled = {name: factor * (getattr(budget, name) or 0) for name in ("native", *STAGES) if name != "other"}
    return replace(process, budget=replace(budget, **scaled))  # and `other` follows


def test_the_runner_ups_stage_is_named_only_where_processes_agree(folder):
    group = next(group for group in groups_of(summarise(folder)) if "mostly because of" in sentence(group))
    for row in group.rows:
        row.processes = [uneven(process, 0.1 + 0.9 * at) for at, process in enumerate(row.processes)]
    assert "mostly because of" not in sentence(group)
    assert "where it loses most is not determined" in sentence(group)


def test_tables_hold_what_the_charts_draw(page, folder):
    for row in summarise(folder):
        if row.rate:
            assert f"{row.rate.value:.3g}" in page.text


def test_a_chart_says_truly_where_its_numbers_are(source):
    label = r'<section id="{}">.*?aria-label="Chart of [^"]*{}; ([^"]*)"'

    def where(section, title=""):
        return re.search(label.format(section, title), source, re.S).group(1)

    assert where("speeds") == "its numbers are in the table below"
    assert where("steps") == "the table below has medians, ends and the number of outliers"
    for curve in ("loss by step", "accuracy by seconds of training"):
        assert where("learning", curve) == "the table below has the last loss and the best accuracy of each curve"
    assert where("scaling").endswith("“Measured beside predicted” what was predicted")
    assert "every number is in the tables" not in source


def test_unproven_rows_stand_in_no_chart_and_say_why(page, source):
    assert (
        "Not compared Nothing shows that it trains the same network ( no proof ): reference/single mnist_small"
        in page.text
    )
    for drawn in re.findall(r"<h3>mnist_small on digits.npz</h3>.*?</script>", source, re.S):
        assert "reference" not in drawn
    legend = re.search(r'<section id="speeds">.*?<p class="keys">(.*?)</p>', source, re.S).group(1)
    assert "reference" not in legend, "no legend without a row"


def test_stacks_add_up_to_the_native_time(page, folder):
    natives = sorted(row.budget.native * 1000 for row in summarise(folder) if row.budget and row.sound)
    stacked = [figure for figure in page.figures if figure["data"][0].get("name") == "io"]
    sums = [sum(column) for figure in stacked for column in zip(*(t["x"] for t in figure["data"]), strict=True)]
    assert sorted(sums) == pytest.approx(natives)


def test_a_stage_has_the_same_colour_everywhere(page):
    colours = {(t["name"], t["marker"]["color"]) for t in traces(page, "bar") if "name" in t}
    assert len(colours) == len({name for name, _ in colours}) == 9  # 7 stages, 2 parts of an exchange


def test_the_ideal_line_starts_at_the_baseline(page):
    lines = traces(page, "scatter")
    ideal = next(t for t in lines if t.get("line", {}).get("dash") == "dot")
    assert ideal["x"] == [1, 2, 4]
    assert ideal["y"] == pytest.approx([ideal["y"][0] * n for n in (1, 2, 4)])
    real = lines[lines.index(ideal) + 1]
    assert real["y"][0] == pytest.approx(ideal["y"][0])


def test_outliers_are_drawn(page):
    dots = [t for t in traces(page, "scatter") if t["mode"] == "markers"]
    assert sum(len(t["x"]) for t in dots) >= 3 * 12  # a hiccup in every simulated process


def test_names_from_a_plan_cannot_become_markup(tmp_path):
    run = MadeRun(tmp_path / "run")
    run.proven(case_of(data='/x/</script><img src="http://e.example/x">'))
    run.proven(case_of("caffempi", knobs={"note": "<b>x"}, data='/x/</script><img src="http://e.example/x">'))
    page = Page(render(run.folder, summarise(run.folder)))
    assert all(address.startswith("#") for address in page.addresses)


def test_an_empty_run_still_has_a_page(tmp_path):
    run = MadeRun(tmp_path / "run")
    run.refuse(case_of(), None, "")
    (run.folder.path / "plan.toml").unlink()
    (run.folder.path / "hosts" / "bench.json").unlink()
    page = Page(write_single(run.folder, tmp_path / "page").read_text())
    assert "0 of 3 processes" in page.text
    assert "No case has a speed yet" in page.text
    assert "lost its plan.toml" in page.text
    assert page.figures == []


def test_a_reason_that_several_cases_share_stands_once(tmp_path):
    run = MadeRun(tmp_path / "run")
    for ranks in (2, 4):
        run.refuse(case_of(ranks=ranks), "unavailable", "there is no mpiexec; install it")
    page = Page(render(run.folder, summarise(run.folder)))
    assert page.text.count("there is no mpiexec; install it") == 1
    assert "unavailable: pytorch (2 cases)" in page.text


def test_passes_left_out_leave_dashes_not_errors(tmp_path):
    run = MadeRun(tmp_path / "run")
    case = run.proven(case_of(ranks=2))

    def native_alone(record):
        for rank in record["ranks"]:
            rank["passes"] = {"native": rank["passes"]["native"]}

    run.changed(case, native_alone)
    page = Page(render(run.folder, summarise(run.folder)))
    assert "No case has both its native and its staged pass" in page.text
    assert "samples/s" in page.text


def test_the_bubble_of_a_network_in_parts_has_a_column(page, tmp_path):
    assert "backward exposed comm. update" in page.text, "no column where nobody holds a network in parts"
    run = MadeRun(tmp_path / "run")
    case = run.proven(case_of(ranks=2, strategy="pipeline"))

    def bubbling(record):
        for rank in record["ranks"]:
            stages = rank["passes"]["staged"]["stage_s"]
            stages["bubble"] = [0.0123] * len(stages["forward"])

    run.changed(case, bubbling)
    found = Page(render(run.folder, summarise(run.folder)))
    assert "forward + backward + bubble + exposed communication" in found.text
    assert "backward bubble exposed comm. update" in found.text
    assert " 12.3 " in found.text


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
