"""An oracle in the cache is used only as it was made: what has lost a file would prove less."""

import os
import shutil
from pathlib import Path

import pytest

from stagebench.suite.contracts.case import Case
from stagebench.suite.processes.attempt import Limits
from stagebench.suite.processes.launch import launch_of
from stagebench.suite.proofs.oracles import DIGESTS, Oracles, intact

GRADIENT = "gradient.fc1.weight.npy"


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    knobs = {"shards": 1, "observed": 1, "bits": 53}
    case = Case("reference", "single", "mnist_small", batch=2, precision="float64", knobs=knobs)
    return launch_of(case, Limits(60.0, 60.0), {}, tmp_path_factory.mktemp("bundles") / "reference")


@pytest.fixture(scope="module")
def made(launch, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STAGEBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        return Oracles({}).of(launch)


@pytest.fixture
def kept(made, tmp_path, monkeypatch):
    """An oracle in a cache of the test's own."""
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path))
    return shutil.copytree(made, tmp_path / "oracles" / made.name)


def cut(path):
    path.write_bytes(path.read_bytes()[:-4])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 64
    path.write_bytes(content)


def make_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("name", [GRADIENT, "meta.json", DIGESTS])
@pytest.mark.parametrize("harm", [Path.unlink, cut, flip, make_a_pipe])
def test_what_is_not_as_it_was_made_is_found(kept, harm, name):
    assert intact(kept)
    harm(kept / name)
    assert not intact(kept)


def test_it_is_made_again_where_it_was_harmed(kept, launch):
    whole = {path.name: path.read_bytes() for path in kept.iterdir()}
    again = kept.stat().st_ino
    assert Oracles({}).of(launch) == kept
    assert kept.stat().st_ino == again, "a whole one is found"
    (kept / GRADIENT).unlink()
    assert Oracles({}).of(launch) == kept
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == whole
    assert [path.name for path in kept.parent.iterdir()] == [kept.name], "nothing broken is left"


def test_rounding_moves_the_oracle_a_little_and_is_measured_once(kept, launch):
    coarse, fine = (Oracles({}).rounding(launch, kept, bits) for bits in (8, 20))
    assert 1e-3 < coarse.gradient < 0.5
    assert 0 < fine.gradient < coarse.gradient / 10
    assert 0 < coarse.loss < 0.01
    assert intact(kept), "they are kept next to the oracle's results"
    stored = kept / "rounded" / "8.json"
    stored.write_text(stored.read_text().replace(f'"loss": {coarse.loss}', '"loss": 7.0'))
    assert Oracles({}).rounding(launch, kept, 8).loss == 7.0, "it is not made again"
    cut(stored)
    assert Oracles({}).rounding(launch, kept, 8) == coarse
