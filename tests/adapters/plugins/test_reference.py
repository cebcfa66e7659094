"""The reference's declaration."""

import pluggy
import pytest

from adapters.reference import plugin
from suite.contracts.case import Case
from suite.contracts.hooks import PROJECT, Hooks


def test_it_registers_as_a_third_party_would():
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.register(plugin)
    manager.check_pending()
    assert [adapter.name for group in manager.hook.stagebench_adapters() for adapter in group] == ["reference"]


def test_capabilities():
    capabilities = plugin.Reference().capabilities
    assert capabilities.precisions == ("float64",)
    assert [strategy.name for strategy in capabilities.strategies] == ["single"]
    assert not capabilities.strategies[0].distributed
    assert capabilities.knobs["shards"].problem(2) is None
    assert "wants int" in capabilities.knobs["shards"].problem("two")


@pytest.mark.parametrize(("batch", "shards", "refused"), [(4, 1, False), (4, 2, False), (4, 3, True)])
def test_shards_must_divide_the_batch(batch, shards, refused):
    case = Case("reference", "single", "mnist_small", batch=batch, knobs={"shards": shards, "observed": 1})
    reason = plugin.Reference().unsupported(case)
    assert (reason is not None) == refused
    if refused:
        assert f"a batch of {batch} does not divide into shards = {shards}" in reason


@pytest.mark.parametrize("knob", ["shards", "observed"])
def test_there_is_one_shard_at_least(knob):
    assert "the least is 1" in plugin.Reference().capabilities.knobs[knob].problem(0)
