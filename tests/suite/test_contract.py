"""A plugin that was written for an older contract is refused with what to change, by name."""

import importlib
from types import SimpleNamespace

import pytest

from suite import plugins
from suite.contracts.hooks import CHANGES, CONTRACT, MOVED, changes_since
from suite.errors import RequestError
from suite.plugin_errors import blamed
from suite.processes import interpreters as find


def test_every_version_says_what_it_changed_and_an_older_import_is_named_with_its_new_place():
    assert sorted(CHANGES) == list(range(2, CONTRACT + 1))
    assert changes_since(CONTRACT) == ""
    assert "Knob from suite.contracts.knobs" in changes_since(1)
    now = pytest.raises(RequestError, match=r"older contract: suite.adapter is suite.contracts.adapter now")
    with now, blamed("the plugin 'lumen'"):
        importlib.import_module("suite.adapter")


@pytest.mark.parametrize(("was", "now"), sorted(MOVED.items()))
def test_what_moved_is_where_the_message_says(was: str, now: str) -> None:
    importlib.import_module(now)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(was)


@pytest.mark.parametrize("contract", [1, None])
def test_an_adapter_of_an_older_contract_is_told_what_to_change(toys: SimpleNamespace, contract: int | None) -> None:
    toys.adapters["alpha"].contract = contract or 1
    words = f"'alpha' was written for contract 1, this stagebench has {CONTRACT}. Change\n  1. plugin.py: import Knob"
    with pytest.raises(RequestError) as caught:
        plugins.adapters()
    assert words in str(caught.value)


def test_an_adapter_of_a_newer_contract_wants_a_newer_stagebench(toys: SimpleNamespace) -> None:
    toys.adapters["alpha"].contract = CONTRACT + 1
    with pytest.raises(RequestError, match="newer stagebench"):
        plugins.adapters()


def test_the_checkout_s_own_environments_are_looked_for_beside_its_tox_file() -> None:
    assert (find.CHECKOUT / "tox.ini").is_file()
