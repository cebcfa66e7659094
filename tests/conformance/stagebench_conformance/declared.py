"""What an adapter declares: whole, true to its files, and what is not declared is refused before anything starts."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import OPTIMISERS, Case, Placement
from stagebench.suite.contracts.launcher import starters, usual
from stagebench.suite.plan import checks
from stagebench.suite.plugin_errors import ask
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.processes import bundle
from stagebench.workloads.kinds import KINDS
from stagebench_conformance.base import Conformance

ABOUT_A_CASE = (
    "unsupported",
    "synchronous",
    "model_parallel_size",
    "microbatches",
    "mpi",
    "decoding",
    "tunes_to_batch",
    "wire_share",
    "sidecars",
)
EVERYWHERE = {"numpy", "stagebench"}  # what a bundle and its interpreter always hold


class Declared(Conformance):
    """Contract and capabilities; needs no framework."""

    def refusal(self, case: Case) -> str | None:
        """What the plan's check answers."""
        able, graph = self.it().capabilities, workloads()[case.workload].graph()
        return checks.refusal(self.it(), able, case, graph, launchers())

    def test_its_declaration_is_whole(self) -> None:
        """Names, strategies, launchers, knobs, layer kinds."""
        adapter, can = self.it(), self.it().capabilities
        assert adapter.name == self.adapter
        assert adapter.title
        assert adapter.environment in (None, adapter.name), "its tox environment bears its name"
        assert adapter.remedy, "say with which command its environment is made"
        names = [strategy.name for strategy in can.strategies]
        assert names
        assert len(set(names)) == len(names)
        for strategy in can.strategies:
            assert strategy.help
            assert starters(strategy, launchers()), "no installed launcher can start it"
            assert set(strategy.launchers) <= set(launchers())
        assert can.devices
        assert can.precisions
        assert can.tunings
        assert set(can.layer_kinds) <= set(KINDS)
        for name, knob in can.knobs.items():
            assert knob.problem(knob.default) is None, f"the default of {name} is not one of its values"
            assert knob.help
            for need in knob.needs:
                assert need.name in (*can.knobs, "device", "precision"), f"{name} needs a {need.name!r} that is not"

    def test_its_record_formats_are_whole(self) -> None:
        """Each has a name of its own among all adapters (a set is packed once by that name), and holds something."""
        everywhere = [form.name for each in adapters().values() for form in each.capabilities.formats]
        for form in self.it().capabilities.formats:
            assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*", form.name), f"{form.name!r} becomes a folder and an option"
            assert form.name not in ("files", "best"), "the plan has these words"
            assert everywhere.count(form.name) == 1, f"another adapter has a format {form.name!r}"
            assert form.help
            assert form.kinds
            assert set(form.kinds) <= {"folder", "arrays"}
        assert self.it().capabilities.real_data or not self.it().capabilities.formats

    def test_its_optimisers_are_known(self) -> None:
        """SGD among them: every plan's default."""
        optimisers = self.it().capabilities.optimisers
        assert "sgd" in optimisers
        assert set(optimisers) <= set(OPTIMISERS)

    def test_its_declared_trainers_are_in_its_bundle(self) -> None:
        """Each strategy's class is in a file that will travel."""
        sources = bundle.sources(self.it())
        for strategy in self.it().capabilities.strategies:
            module, _, name = strategy.trainer.partition(":")
            path = sources.get(module.removeprefix("stagebench.").replace(".", "/") + ".py")
            assert path, f"{strategy.trainer} is not in the bundle; correct the strategy's trainer, or `package`"
            classes = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
            assert name in classes, f"{module} has no class {name!r} but {classes}; correct the strategy's trainer"

    def test_its_bundle_imports_only_what_it_declares(self) -> None:
        """The standard library, NumPy, the core's worker half, itself, what it builds on, and its declared modules."""
        adapter = self.it()
        own = bundle.own_sources(adapter)
        others = (adapter.package, *adapter.builds_on, *adapter.requires, *adapter.optional)
        allowed = EVERYWHERE | {name.split(".")[0] for name in others}
        wrong = [
            f"{place}: {module}"
            for place, path in own
            if path.suffix == ".py"
            for module in imported(path.read_text())
            if module.split(".")[0] not in allowed | set(sys.stdlib_module_names)
            or (module.startswith("stagebench.suite.") and not module.startswith("stagebench.suite.worker"))
        ]
        assert not wrong, "its interpreter may not have these; an adapter names its own in `requires` or `optional`"

    def test_its_methods_return_what_the_contract_declares(self) -> None:
        """For the first case of each strategy; RequestError names the method and the type it should have returned."""
        adapter, interpreter = self.it(), Path(sys.executable)
        for strategy in adapter.capabilities.strategies:
            case = self.plain().on(strategy=strategy.name)
            for name in ABOUT_A_CASE:
                ask(adapter, name, case)
            ask(adapter, "environ", case, interpreter)
        ask(adapter, "missing", interpreter)
        for form in adapter.capabilities.formats:
            ask(adapter, "unreadable", form)

    def test_what_it_declares_it_does_not_refuse(self) -> None:
        """The first of everything."""
        assert self.refusal(self.plain()) is None

    @pytest.mark.parametrize("what", ["strategy", "precision", "tuning", "device", "optimiser"])
    def test_what_it_does_not_declare_is_refused_by_name(self, what: str) -> None:
        """With the value and the adapter's name."""
        case = self.plain()
        other = case.on(placement=Placement(device="abacus")) if what == "device" else case.on(**{what: "abacus"})
        found = self.refusal(other)
        assert found is not None
        assert f"{what} 'abacus'" in found
        assert found.startswith(self.adapter)

    def test_a_declared_knob_is_refused_a_value_of_no_kind(self) -> None:
        """Each of them."""
        case = self.plain()
        for knob in self.it().capabilities.knobs:
            assert f"knob {knob} " in str(self.refusal(case.on(knobs={**case.knobs, knob: [1.5]})))

    def test_a_strategy_declared_for_one_rank_is_refused_more(self) -> None:
        """And one for one device per rank, several devices."""
        for strategy in self.it().capabilities.strategies:
            one = Placement(launcher=usual(strategy, launchers()), device=self.plain().placement.device)
            case = self.plain().on(strategy=strategy.name, workload="probe" if strategy.cut else "mnist_small")
            ranks = self.refusal(case.on(placement=replace(one, ranks_per_node=2)))
            assert (ranks is None) == strategy.distributed, ranks
            if not strategy.several_devices:
                assert "one device per rank" in str(self.refusal(case.on(placement=replace(one, devices=2))))

    def test_its_own_refusals_say_why(self) -> None:
        """Each of `refusals`, by `unsupported` or by what is declared; an adapter with an `unsupported` has some."""
        plain = self.plain()
        for changes, words in self.refusals:
            whole = {**changes, "knobs": {**plain.knobs, **changes.get("knobs", {})}}  # as every case has them
            assert words in str(self.refusal(plain.on(**whole))), changes
        refuses = type(self.it()).unsupported is not Adapter.unsupported
        assert self.refusals or not refuses, "what `unsupported` refuses stands in `refusals`, and is tested so"


def imported(source: str) -> Iterator[str]:
    """Every module that a source imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute: a bundle is no package of yours"
            yield f"{node.module}.{node.names[0].name}"
