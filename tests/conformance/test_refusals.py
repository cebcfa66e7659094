"""What an adapter cannot do it refuses before anything starts, by its declaration or in its own words."""

from typing import Any

import pytest

from suite.adapter import Adapter
from suite.case import Case, Placement
from suite.plan import able
from suite.plugins import adapters, workloads

NAMES = sorted(adapters())

# Each adapter's own refusals, beyond its declaration: (what is asked, what it answers).
OWN: dict[str, list[tuple[dict[str, Any], str]]] = {
    "mxnet": [
        ({"knobs": {"servers": 2}}, "belongs to the dist_ strategies"),
        ({"strategy": "dist_sync", "knobs": {"servers": 0}}, "there is at least 1"),
        ({"precision": "float64", "knobs": {"lrn": "native"}}, "computes in float32"),
    ],
    "pytorch": [
        ({"strategy": "single", "knobs": {"static_graph": True}}, "belongs to the strategy 'ddp'"),
        ({"strategy": "dp"}, "it would run the whole batch on one, unsplit and without a word"),
        (
            {"strategy": "dp", "placement": Placement(device="cuda", devices=2), "knobs": {"compile": True}},
            "which a compiled one does not allow",
        ),
        ({"strategy": "ddp", "knobs": {"bucket_cap_mb": 0}}, "a bucket holds at least 1 MiB"),
    ],
    "reference": [({"batch": 3, "knobs": {"shards": 2}}, "a batch of 3 does not divide into shards = 2")],
}


def plain(adapter: Adapter) -> Case:
    """The first of everything that the adapter declares, on one rank."""
    can, strategy = adapter.capabilities, adapter.capabilities.strategies[0]
    placement = Placement(launcher=strategy.launchers[0], device=can.devices[0])
    return Case(adapter.name, strategy.name, "mnist_small", placement, precision=can.precisions[0]).on(
        tuning=can.tunings[0], knobs={name: knob.default for name, knob in can.knobs.items()}
    )


def refusal(adapter: Adapter, case: Case) -> str | None:
    return able.refusal(adapter, adapter.capabilities, case, workloads()["mnist_small"].graph())


@pytest.mark.parametrize("name", NAMES)
def test_what_it_declares_it_does_not_refuse(name):
    assert refusal(adapters()[name], plain(adapters()[name])) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", ["strategy", "precision", "tuning", "device"])
def test_what_it_does_not_declare_is_refused_by_name(name, what):
    adapter = adapters()[name]
    case = plain(adapter)
    other = case.on(placement=Placement(device="abacus")) if what == "device" else case.on(**{what: "abacus"})
    found = refusal(adapter, other)
    assert f"{what} 'abacus'" in found
    assert found.startswith(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_knob_is_refused_a_value_of_no_kind(name):
    adapter = adapters()[name]
    case = plain(adapter)
    for knob in adapter.capabilities.knobs:
        assert f"knob {knob} " in refusal(adapter, case.on(knobs={**case.knobs, knob: [1.5]}))


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_of_one_rank_is_refused_more(name):
    adapter = adapters()[name]
    for strategy in adapter.capabilities.strategies:
        placement = Placement(ranks_per_node=2, launcher=strategy.launchers[0])
        case = plain(adapter).on(strategy=strategy.name, placement=placement)
        assert (refusal(adapter, case) is None) == strategy.distributed


@pytest.mark.parametrize(("name", "changes", "words"), [(name, *each) for name in sorted(OWN) for each in OWN[name]])
def test_its_own_refusals_say_why(name, changes, words):
    assert words in refusal(adapters()[name], plain(adapters()[name]).on(**changes))


def test_every_refusal_of_an_adapters_own_is_tested_here():
    refusing = {name for name in NAMES if type(adapters()[name]).unsupported is not Adapter.unsupported}
    assert refusing == set(OWN)
