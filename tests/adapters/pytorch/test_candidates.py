"""Ways to compute a layer: they give the same numbers, the fastest is kept and recorded, a knob fixes it."""

import json
from functools import partial
from typing import Any

import pytest
import torch

from stagebench.adapters.pytorch import candidates
from stagebench.adapters.pytorch.candidates import WAYS, choose, knob_of, tried
from stagebench.adapters.pytorch.lower import attempt
from stagebench.adapters.pytorch.net import Net
from stagebench.suite.worker.contract import Unsupported
from stagebench.workloads import weights
from stagebench.workloads.graph import Graph
from tests.support import proofs
from tests.support.errors import raising
from tests.support.networks import drawn, one_layer, pointwise
from tests.support.trainers import setup_with_knobs

TUNED = setup_with_knobs(tuning="tuned")
CODE = __file__
LAYOUTS = [torch.contiguous_format, torch.channels_last]


HAS_WAYS = [layer for layer in pointwise().layers if knob_of(layer)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder of what was chosen."""
    monkeypatch.setattr(candidates, "MADE", {})
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "candidates"


@pytest.fixture
def times(monkeypatch):
    """Seconds of each way, instead of measured ones; what was timed is appended to `times.calls`."""

    class Times(dict):
        def __call__(self, runs, threads):
            self.calls.append(list(runs))
            return {way: self[way] for way in runs}

    made: Any = Times(torch=3.0, onednn=2.0, product=1.0)
    made.calls = []
    monkeypatch.setattr(candidates, "tried", made)
    return made


def chosen(setup=TUNED, group=None, samples=4, about="pytorch, channels_last"):
    tried = partial(attempt, torch.channels_last, samples=samples)
    return choose(setup, group, pointwise(), samples, about, tried, [CODE])


def test_strided_convolutions_have_one_way_as_torch_gives_them_to_onednn():
    assert [layer.name for layer in HAS_WAYS] == ["wide", "narrow", "hidden", "fc"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layer", HAS_WAYS, ids=lambda layer: layer.name)
def test_every_way_gives_the_same_output_and_gradients(layer, layout):
    usual, *others = (attempt(layout, layer, way, 4)() for way in WAYS[knob_of(layer)])
    for results in others:
        assert len(results) == len(usual)
        for ours, theirs in zip(results, usual, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
            assert (ours - theirs).norm() < 1e-6 * theirs.norm()


def test_a_way_with_other_results_is_left_out():
    one = torch.ones(3)
    runs = {"torch": lambda: [one], "onednn": lambda: [one + 1e-4], "product": lambda: [one + 1e-6]}
    assert set(tried(runs, 1)) == {"torch", "product"}


def test_the_fastest_is_kept_and_not_timed_again(times, cache):
    expected = {"wide": "product", "narrow": "product", "hidden": "onednn", "fc": "onednn"}
    assert chosen() == expected
    assert len(times.calls) == 4
    (path,) = cache.iterdir()
    kept = json.loads(path.read_text())
    assert kept["pointwise: 8 of 4x6x9x9, without bias, pytorch, channels_last"]["way"] == "product"
    times["torch"] = 0.1
    for _ in range(2):
        assert chosen() == expected
        assert len(times.calls) == 4
        candidates.MADE.clear()  # as in another process
    assert set(chosen(samples=8).values()) == {"torch"}, "another batch is timed by itself"
    assert list(cache.iterdir()) == [path]


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"a": "torch"}', '{"a": [1]}', "\xff"])
def test_a_broken_file_is_made_again(times, cache, text):
    before = chosen()
    (path,) = cache.iterdir()
    whole = path.read_text()
    path.write_bytes(text.encode("latin-1"))
    candidates.MADE.clear()
    assert chosen() == before
    assert len(times.calls) == 8
    assert path.read_text() == whole


def test_a_way_that_is_unknown_is_timed_again(times, cache):
    before = chosen()
    (path,) = cache.iterdir()
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({key: {"way": ["magic"]} for key in kept}))
    candidates.MADE.clear()
    assert chosen() == before
    assert json.loads(path.read_text()) == kept


def test_what_another_process_wrote_meanwhile_stays(monkeypatch, times, cache):
    chosen()
    (path,) = cache.iterdir()
    first = json.loads(path.read_text())
    path.unlink()

    def beside(runs, threads):
        path.write_text(json.dumps(first))
        return times(runs, threads)

    monkeypatch.setattr(candidates, "tried", beside)
    chosen(samples=8)
    assert len(json.loads(path.read_text())) == 8


def test_other_code_is_timed_by_itself(monkeypatch, times, cache, tmp_path):
    chosen()
    path = tmp_path / "lower.py"
    monkeypatch.setitem(globals(), "CODE", str(path))
    for number, text in enumerate([None, "one", "two"], 2):
        if text:
            path.write_text(text)
        chosen()
        assert len(list(cache.iterdir())) == number
    assert len(times.calls) == 16


def test_a_cache_that_cannot_be_written_costs_only_the_time_once(times, cache):
    cache.parent.write_text("no folder")
    before = chosen()
    assert before["fc"] == "onednn"
    times["torch"] = 0.1
    assert chosen() == before, "a proof builds twice: both halves are computed alike"
    assert len(times.calls) == 4


def test_noise_does_not_choose(times):
    times.update(torch=1.0, onednn=0.97, product=0.96)
    assert set(chosen().values()) == {"torch"}


@pytest.mark.usefixtures("times")
def test_rank_0_chooses_for_all():
    class Told:
        def maximum(self, number):
            return {-1.0: None}.get(number, 1.0)  # what rank 0 found is 1, "onednn"

    assert set(chosen(TUNED._replace(rank=1, world=2), Told()).values()) == {"onednn"}


@pytest.mark.parametrize(
    "changes", [{"tuning": "default"}, {"precision": "float64"}, {"precision": "bfloat16"}, {"device": "cuda"}]
)
def test_nothing_is_timed_elsewhere(times, changes):
    assert set(chosen(TUNED._replace(**changes)).values()) <= {"torch"}
    assert not times.calls


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_knobs_fix_it_and_the_record_says_so(times, trainer, tuning):
    ours = trainer(tuning=tuning, products="onednn", pointwise="torch")
    ours.build(pointwise(), dict(weights.initial(pointwise())))
    assert ours.notes()["layer_kernels"] == {"onednn": ["hidden", "fc"], "torch": ["wide", "narrow"]}
    assert not times.calls


def test_a_proof_chooses_by_the_measured_case_s_batch(times, trainer, cache):
    ours = trainer(batch=2, tuned_batch=16)
    ours.build(pointwise(), dict(weights.initial(pointwise())))
    assert len(times.calls) == 4
    (path,) = cache.iterdir()
    assert all(" of 16x" in key for key in json.loads(path.read_text()))


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
@pytest.mark.parametrize("way", WAYS["pointwise"])
def test_every_way_is_proven(trainer, tmp_path, way, memory_format):
    graph = pointwise()
    proofs.write_oracle(graph, 8, tmp_path)
    dense = "torch" if way == "torch" else "onednn"
    ours = trainer(batch=8, products=dense, pointwise=way, memory_format=memory_format)
    proofs.assert_proven(graph, proofs.prove(ours, graph, 8, str(tmp_path)))


@pytest.mark.parametrize(
    ("strategy", "options"), [("fsdp", {}), ("pipeline", {"model_parallel_size": 2, "microbatches": 2})]
)
def test_strategies_train_by_the_same_ways(proven, strategy, options):
    pieces = options.get("microbatches", 1)
    knobs = {"products": "onednn", "pointwise": "product"}
    proven(pointwise(), strategy=strategy, tuning="tuned", precision="float32", pieces=pieces, **options, **knobs)


@pytest.mark.usefixtures("times")
def test_a_user_without_a_home_folder_keeps_nothing(tmp_path, monkeypatch):
    for name in ("STAGEBENCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    assert chosen()["fc"] == "onednn"
    assert not list(tmp_path.iterdir())


def test_what_torch_cannot_pool_is_unsupported():
    graph = one_layer("max_pool", {"kernel": 2, "stride": 2, "pad": 2})
    with raising(Unsupported, "it", 2):
        Net(graph, drawn(graph), False)


def test_places_are_used_again():
    graph = Graph("chain", (6, 9, 9), 7)
    x = "input"
    for index in range(10):
        x = graph.add(f"relu{index}", "relu", (x,))
    graph.add_head(graph.add("out", "dense", (graph.add("flat", "flatten", (x,)),), out=7))
    assert Net(graph, drawn(graph), True)._size == 1
