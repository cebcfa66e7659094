"""The roofline by hand: what layers need, what bounds them, and how the command shows it."""

import json

import pytest

from stagebench.suite.analysis.machine import Peak
from stagebench.suite.analysis.roofline import roofline
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.analysis.wording import number
from stagebench.suite.cli.results import print_results
from stagebench.suite.contracts.case import Placement
from stagebench.workloads.build import Builder
from stagebench.workloads.networks import by_name
from stagebench.workloads.networks.resnet import resnet50
from stagebench.workloads.networks.vit import vit
from tests.reports import made_run
from tests.reports.made_run import case_of
from tests.reports.test_site import described

PEAK = Peak(2e9, 1e6, "a toy")  # 2,000 operations take as long as a byte


def small():
    b = Builder("small", (2, 4, 4), 10)
    x = b.relu("relu", b.conv("conv", "input", 3, 3, pad=1))  # 3 x 4 x 4 = 48 numbers from 32; 864 multiply-accumulates
    b.head(b.dense("fc", b.flatten("flat", x), 10))  # 480 multiply-accumulates, 490 parameters
    return b.graph


def test_every_number_of_a_small_network():
    case = case_of(batch=5, momentum=0.9, placement=Placement(ranks_per_node=2))
    found = roofline(small(), case, Peak(2 * PEAK.flop_per_s, 2 * PEAK.bytes_per_s, ""))
    conv, relu, fc, update = found.rows
    # The images want no gradient: one multiplication of backward less, and the weights are not read again.
    assert (conv.operations, conv.bytes) == (2 * 5 * 864 * 2, 4 * (5 * (32 + 48 + 48 + 32) + 2 * 57))
    assert (relu.operations, relu.bytes, relu.intensity) == (0, 4 * 5 * (48 + 48 + 48 + 48 + 48), 0)
    assert (fc.operations, fc.bytes) == (2 * 5 * 480 * 3, 4 * (5 * (48 + 10 + 10 + 48 + 48) + 3 * 490))
    assert (update.operations, update.bytes, update.kind) == (0, 4 * 5 * (57 + 490), "sgd")
    assert [row.bound_by for row in found.rows] == ["memory"] * 4
    assert found.best_s == pytest.approx(sum(row.bytes for row in found.rows) / 1e6)
    assert (found.best_rate, found.memory_share) == (pytest.approx(5 / found.best_s), 1)


def test_attention_multiplies_its_input_by_itself():
    rows = roofline(vit("vit", (3, 8, 8), 4, 6, 2, 1, 10), case_of(batch=5), PEAK).by_layer
    # Forward, and the gradients of both operands.
    assert rows["block1_attention"].operations == 2 * 5 * 3 * (2 * 5 * 5 * 6)
    assert rows["block1_qkv"].operations == 2 * 5 * 3 * (5 * 6 * 18)
    assert rows["patches"].operations == 2 * 5 * 2 * (4 * 48 * 6)


def test_an_update_moves_what_its_optimiser_keeps_in_float32_and_slow_arithmetic_bounds_convolutions():
    wide, mixed = (roofline(small(), case_of(precision=each), PEAK).rows[-1].bytes for each in ("float32", "bfloat16"))
    assert wide == mixed
    for changes, numbers in (({"momentum": 0.0}, 3), ({"optimiser": "adam"}, 7), ({"optimiser": "adamw"}, 7)):
        assert roofline(small(), case_of(**changes), PEAK).rows[-1].bytes == 4 * numbers * 547, changes
    found = roofline(small(), case_of(batch=5), Peak(1e6, 1e9, ""))
    assert [row.bound_by for row in found.rows] == ["arithmetic", "memory", "arithmetic", "memory"]
    assert found.rows[0].best_s == pytest.approx(2 * 5 * 864 * 2 / 1e6)
    assert found.memory_share < 0.01


def test_a_run_shows_it(run, stagebench):
    case = run.proven(case_of("pytorch", "resnet50", graph_digest=resnet50().digest))

    def peak(record):
        record["ranks"][0]["peaks"] = {"flop_per_s": 1e11, "bytes_per_s": 1e10, "library": "NumPy"}
        record["ranks"][0]["layers"] = [
            {"layer": "conv1", "kind": "conv", "forward_s": 0.2, "backward_s": 0.3, "communication_s": 0.0, "bytes": 9}
        ]

    refused = stagebench("show", str(run.folder.path), "--roofline")
    assert "no case with a measured peak" in str(refused.error)
    run.changed(case, peak)
    (found,) = json.loads(stagebench("show", str(run.folder.path), "--roofline", "--json").stdout)
    first = found["layers"][0]
    # 118,013,952 multiply-accumulates a sample, twice.
    assert (first["layer"], first["measured_s"]) == ("conv1", 0.5)
    assert first["best_s"] == pytest.approx(2 * 8 * 118_013_952 * 2 / 1e11)
    assert first["share"] == pytest.approx(first["best_s"] / 0.5)
    shown = stagebench("show", str(run.folder.path), "--roofline").stdout
    assert "at best" in shown
    assert "100 Gflop/s and 10.0 GB/s" in shown
    page = described(run.folder)[case.id]["html"]
    assert "bound by" in page
    assert "37.8</td><td>arithmetic</td>" in page  # milliseconds at best, of conv1


def test_a_network_with_a_label_for_each_token_has_a_speed_in_tokens(run, monkeypatch, capsys):
    monkeypatch.setitem(made_run.NETWORKS, "gpt_char", made_run.NETWORKS["alexnet"])
    run.proven(case_of("pytorch", "gpt_char", graph_digest=by_name()["gpt_char"].graph().digest))
    run.proven(case_of("pytorch", "resnet50", graph_digest=resnet50().digest))
    text, images = summarise(run.folder)
    assert (text.tokens, images.token_rate) == (64, None)
    assert text.token_rate.value == pytest.approx(64 * text.speed)
    print_results(run.folder)
    told = capsys.readouterr().out
    assert number(64 * text.speed).replace("\u202f", " ") in told.replace("\u202f", " ").replace(",", " ")
    assert told.count("tokens/s") == 1
