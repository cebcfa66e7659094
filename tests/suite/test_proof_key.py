"""What a proof vouches for: its key changes with all that could change what is computed."""

from dataclasses import replace

import pytest

from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.plugins import adapters
from stagebench.suite.processes.attempt import Limits
from stagebench.suite.processes.jobs import group
from stagebench.suite.processes.launch import launch_of
from stagebench.suite.proofs.make import Proofs, configuration_of_proof, tuned_batch
from stagebench.workloads.networks.__init__ import by_name

NETWORK = by_name()["mnist_small"]


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    knobs = {"shards": 1, "observed": 1, "bits": 53}
    case = Case("reference", "single", "mnist_small", precision="float64", knobs=knobs)
    return launch_of(case, Limits(10.0, 10.0), {}, tmp_path_factory.mktemp("bundles") / "reference")


def key(launch):
    return Proofs({})._key(launch)


def test_it_is_the_same_for_the_same_and_any_other_variable(launch, monkeypatch):
    assert key(launch) == key(launch)
    before = key(launch)
    monkeypatch.setenv("EDITOR", "ed")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert key(launch) == before


@pytest.mark.parametrize("name", ["ONEDNN_DEFAULT_FPMATH_MODE", "LUMEN_FAST", "LD_PRELOAD", "NPY_DISABLE_CPU_FEATURES"])
def test_a_variable_that_changes_arithmetic_changes_it(launch, monkeypatch, name):
    """LUMEN_: of a framework's own, as its adapter declares."""
    monkeypatch.setattr(type(launch.adapter), "arithmetic_variables", ("LUMEN_",))
    monkeypatch.delenv(name, raising=False)
    before = key(launch)
    monkeypatch.setenv(name, "1")
    assert key(launch) != before


def on(launch, **changes):
    configuration = launch.configuration
    return replace(launch, configuration=configuration.on(placement=replace(configuration.placement, **changes)))


def test_another_machine_is_named_instead_of_this_one(launch):
    assert on(launch, hosts=("localhost",)).here
    assert key(on(launch, hosts=("localhost",))) == key(launch)
    far = [on(launch, hosts=(name,)) for name in ("far.example", "farther.example")]
    assert not any(each.here for each in far)
    assert len({key(launch), *map(key, far)}) == 3
    chooser = type("Chooser", (), {"name": "chooser", "chooses_hosts": True})()
    assert not replace(launch, launcher=chooser).here


def test_it_takes_the_placement_s_own_cores_and_a_tuned_kernel_s_own_batch(launch):
    placement = Placement(threads=3, binding="cores")
    case = Case("reference", "single", "mnist_small", placement, precision="float64", readers=2)
    assert configuration_of_proof(case, launch.adapter, NETWORK).placement == placement
    read = [case.on(data="photographs"), case, case.on(data="photographs", placement=Placement(threads=3))]
    readers = [configuration_of_proof(each, launch.adapter, NETWORK).readers for each in read]
    assert readers == [2, 0, 0], "a bound rank that reads has cores for its readers, too"
    assert key(replace(launch, tuned_batch=64)) not in (key(launch), key(replace(launch, tuned_batch=32)))
    case = Case("pytorch", "single", "mnist_small", batch=64, tuning="tuned", knobs={})
    assert tuned_batch(case, adapters()["pytorch"]) == 64
    assert tuned_batch(case, launch.adapter) == 0
    assert group(case, adapters()["pytorch"], 64).setup.tuned_batch == 64
