"""Every adapter that is registered here, through the suite that is shipped.

An adapter's own rows (ROWS) stand in tests/adapters/FOLDER/conformance.py, as its code in adapters/FOLDER. What
needs a framework runs in the adapter's own interpreter; where there is none it is skipped, and fails for the adapters
that STAGEBENCH_NEED names ("pytorch,jax"), as tox.ini does. STAGEBENCH_EVERY_PAIR=1 proves the network of every layer
kind in every pair of strategy and tuning (`tox run -e verify`): too long for every day.
"""

import os
import runpy
from pathlib import Path

import pytest
from stagebench_conformance import AdapterConformance, probe

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.plugins import adapters
from stagebench.suite.proofs.every_adapter import PROBES
from stagebench.suite.proofs.make import Proofs
from stagebench.workloads.kinds import KINDS

OWN = {path.parent.name: path for path in Path(__file__).parents[1].glob("adapters/*/conformance.py")}
NEEDED = {name.strip() for name in os.environ.get("STAGEBENCH_NEED", "").split(",") if name.strip()}
ROWS = {"gaps", "refusals", "fresh_sidecars"}
EVERY_PAIR = os.environ.get("STAGEBENCH_EVERY_PAIR") == "1"


def folder_of(adapter: Adapter) -> str:
    """Its own in adapters/; a third party's has no tests here."""
    top, _, below = adapter.package.removeprefix("stagebench.").partition(".")
    return below.partition(".")[0] if top == "adapters" else ""


def suite_of(name: str) -> type[AdapterConformance]:
    """The whole suite with what the adapter's own file says."""
    place = OWN.get(folder_of(adapters()[name]))
    own = runpy.run_path(str(place)) if place else {}
    rows = {row: own[row] for row in ROWS if row in own}
    missing = "fail" if name in NEEDED else "skip"
    choices = {"where_missing": missing, "every_pair": EVERY_PAIR, "warm": not EVERY_PAIR}
    return type(f"Test_{name}", (AdapterConformance,), {"adapter": name, **choices, **rows})


for _name in sorted(adapters()):
    globals()[f"Test_{_name}"] = suite_of(_name)


def test_the_probes_hold_every_kind():
    assert {layer.kind for each in PROBES for layer in each.graph().layers} == set(KINDS)


def test_every_adapter_that_is_needed_is_one():
    assert not NEEDED - set(adapters()), "STAGEBENCH_NEED names adapters, with commas between them"


@pytest.mark.parametrize("name", sorted(OWN))
def test_an_adapter_s_own_rows_are_an_adapter_s_and_are_read(name):
    assert name in map(folder_of, adapters().values())
    rows = {row for row in runpy.run_path(str(OWN[name])) if row.islower() and not row.startswith("_")}
    assert rows
    assert rows <= ROWS, "only these are looked for"


def test_cases_run_on_the_kind_of_device_that_a_class_names():
    on_gpus = type("OnGPUs", (AdapterConformance,), {"adapter": "pytorch", "device": "cuda"})()
    cases = on_gpus.cases()
    assert {case.placement.device for case in (*cases, on_gpus.plain())} == {"cuda"}
    assert "dp" in {case.strategy for case in cases}, "which CPUs do not have"


@pytest.mark.parametrize("every", [True, False])
def test_fewer_pairs_leave_out_no_strategy_and_no_tuning(every):
    suite = type("Suite", (AdapterConformance,), {"adapter": "pytorch", "every_pair": every})()
    pairs = {(case.strategy, case.tuning) for case in suite.lowered()}
    all_of_them = {(case.strategy, case.tuning) for case in suite.cases()}
    assert (pairs == all_of_them) == every
    for part in (0, 1):
        assert {pair[part] for pair in pairs} == {pair[part] for pair in all_of_them}


class OverMXNet(AdapterConformance):
    adapter, where_missing = "mxnet", "skip"
    __test__ = False  # the whole suite runs in test_adapters.py


def test_the_gate_refuses_mxnet_s_own_lrn_for_its_gradient(tmp_path):
    """oneDNN's, in 1.9.1; the composed one, its default, is proven with every kind of layer."""
    probe.register()
    mxnet = OverMXNet()
    plain = mxnet.plain()
    case = plain.on(workload="probe", knobs={**plain.knobs, "lrn": "native"})
    proof = Proofs({}).prove(case, mxnet.launch(case, tmp_path), tmp_path)
    assert not proof.passed
    assert max(proof.errors["gradient"].values()) > 0.1
    assert "gradient of conv1" in proof.reason
