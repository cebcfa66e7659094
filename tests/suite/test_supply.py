"""Locks agree with what tox installs; advisories are found in a snapshot, or the tool says that it has none."""

import configparser
import json
import re
import subprocess
import sys
import tomllib
import zipfile

import pytest
import yaml

from stagebench.suite import __version__
from stagebench.suite.files import DOCS
from stagebench.suite.processes.environments import declared, pins
from tests.validation.supply import supply


def test_every_framework_has_a_lock_that_is_hashed_and_names_no_place():
    for name in (supply.CONTROLLER, *supply.ENVIRONMENTS, supply.CNTK):
        text = (supply.LOCKS / f"{name}.txt").read_text()
        pins = supply.PINNED.findall(text)
        assert pins, name
        assert "://" not in text
        assert "+cpu" not in text
        for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]:
            assert block.startswith("#") or "--hash=sha256:" in block, f"{name}: {block}"
    tox = configparser.RawConfigParser()
    tox.read(supply.ROOT / "tox.ini")
    names = ",".join(tox["base"][kind] for kind in ("names", "compiled", "by_name")).split(",")
    assert set(names) <= {*supply.ENVIRONMENTS, supply.CNTK}


def test_the_locks_have_every_pin_of_tox():
    locked, made = set(supply.locked()), declared()
    for environment in (*supply.ENVIRONMENTS, supply.CNTK):
        found = supply.PINNED.findall("\n".join(pins(made[environment].file)))
        assert found
        for name, version in found:
            assert (environment, supply.normal(name), version) in locked


def test_the_citation_names_the_version_and_the_licence():
    citation = yaml.safe_load((supply.ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((supply.ROOT / "pyproject.toml").read_text())["project"]
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
    assert (citation["title"], citation["abstract"]) == (project["name"], project["description"])
    assert "[CITATION.cff](CITATION.cff)" in (supply.ROOT / "README.md").read_text()


@pytest.mark.slow
def test_two_builds_of_the_wheel_have_equal_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_OFFLINE", "1")
    if subprocess.run(["git", "rev-parse"], cwd=supply.ROOT, capture_output=True, check=False).returncode:
        pytest.skip("not a git checkout: a release is built from a commit")
    one, two = (supply.built(tmp_path / name) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_size <= supply.MOST
    named = {"adapters.md", "cntk-libraries.md", "planted-mistakes.md"}  # by messages, as DOCS / "adapters.md"
    assert {f"stagebench/docs/{name}" for name in named} <= set(zipfile.ZipFile(one).namelist())
    assert DOCS == supply.ROOT / "docs"


def test_a_release_is_tried_on_every_python(tmp_path):
    with pytest.raises(SystemExit, match=r"3\.99"):
        supply.installed(tmp_path / "stagebench.whl", "3.99", tmp_path / "environment")


def test_without_a_snapshot_it_says_so(monkeypatch, capsys):
    monkeypatch.delenv("STAGEBENCH_ADVISORIES", raising=False)
    assert supply.advisories() == 0
    assert "no snapshot, so no advisories and no yanked versions were looked at" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", "absent"])
def test_a_folder_without_advisories_is_not_taken_for_a_clean_one(name, monkeypatch, tmp_path):
    monkeypatch.setenv("STAGEBENCH_ADVISORIES", str(tmp_path / name))
    with pytest.raises(SystemExit, match=r"STAGEBENCH_ADVISORIES names .*json"):
        supply.advisories()


def test_a_snapshot_can_be_pinned(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("STAGEBENCH_ADVISORIES", str(tmp_path))
    (tmp_path / "A-1.json").write_text(json.dumps(advisory(withdrawn="2026-01-01", modified="2026-01-02T00:00:00Z")))
    (tmp_path / "A-2.json").write_text(json.dumps({"name": "jax", "files": []}))
    assert supply.advisories() == 0
    told = capsys.readouterr().out
    digest = re.search(r"2 files, the newest 2026-01-02T00:00:00Z, digest ([0-9a-f]{32})\n", told)[1]
    assert supply.advisories(digest) == 0
    (tmp_path / "A-2.json").rename(tmp_path / "A-3.json")
    for other in ("", digest[:8]):
        with pytest.raises(SystemExit, match=f", not {other}: "):
            supply.advisories(other)
    with pytest.raises(SystemExit, match=f"not {digest}"):
        supply.advisories(digest)
    monkeypatch.delenv("STAGEBENCH_ADVISORIES")
    with pytest.raises(SystemExit, match=r"none: .*STAGEBENCH_ADVISORIES"):
        supply.advisories(digest)


def advisory(*events, kind="ECOSYSTEM", **more):
    """One of OSV's, as small as its schema allows."""
    package = {"name": "JAX", "ecosystem": "PyPI"}
    return {"id": "A-1", "affected": [{"package": package, "ranges": [{"type": kind, "events": events}]}], **more}


@pytest.mark.parametrize(
    ("known", "affected"),
    [
        (advisory({"introduced": "0"}), True),
        (advisory({"introduced": "0"}, {"fixed": "0.10.2"}), False),
        (advisory({"introduced": "0"}, {"fixed": "0.10.3"}), True),
        (advisory({"introduced": "0"}, {"fixed": "0.9"}), False),  # as numbers: 10 is more than 9
        (advisory({"introduced": "0"}, {"last_affected": "0.10.2"}), True),
        (advisory({"introduced": "0"}, {"last_affected": "0.10.1"}), False),
        (advisory({"introduced": "0.10.3"}), False),
        (advisory({"introduced": "0.10.2"}, {"fixed": "0.11"}), True),
        (advisory({"introduced": "0.10.2rc1"}, {"fixed": "0.10.2"}), False),
        (advisory({"fixed": "0.9"}, {"introduced": "0.10"}, {"introduced": "0"}, {"fixed": "0.11"}), True),  # any order
        (advisory({"introduced": "0"}, {"fixed": "0.1dev-r5"}), False),  # not of PEP 440: before all that are
        (advisory({"introduced": "0"}, {"limit": "0.10"}), False),
        (advisory({"introduced": "0"}, withdrawn="2026-01-01T00:00:00Z"), False),
        (advisory({"introduced": "0"}, kind="GIT"), False),  # of commits
        ({"id": "A-1", "affected": [{"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}]}, False),
        ({"id": "A-1", "affected": [{"package": {"name": "jax", "ecosystem": "npm"}, "versions": ["0.10.2"]}]}, False),
        (
            {"id": "A-1", "affected": [{"package": {"name": "jax", "ecosystem": "PyPI"}, "versions": ["0.10.2.0"]}]},
            True,
        ),
    ],
)
def test_ranges_of_an_advisory_are_read_as_their_schema_says(known, affected, monkeypatch, capsys, tmp_path):
    (tmp_path / "A-1.json").write_text(json.dumps(known))
    monkeypatch.setenv("STAGEBENCH_ADVISORIES", str(tmp_path))
    assert supply.advisories() == affected
    assert ("jax: jax 0.10.2: A-1" in capsys.readouterr().out) == affected


def test_every_package_of_every_lock_is_looked_at(monkeypatch, capsys, tmp_path):
    for number, (_, name, version) in enumerate(supply.locked()):
        package = {"name": name, "ecosystem": "PyPI"}
        affected = [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": version}]}]}]
        (tmp_path / f"{number}.json").write_text(json.dumps({"id": f"A-{number}", "affected": affected}))
    monkeypatch.setenv("STAGEBENCH_ADVISORIES", str(tmp_path))
    assert supply.advisories() == 1
    told = capsys.readouterr().out
    pins = list(supply.locked())
    assert len(pins) > 300
    assert all(f"{environment}: {name} {version}: A-" in told for environment, name, version in pins)
    assert f"{len(pins)} of {len(pins)} locked versions" in told


def test_a_locked_version_that_was_yanked_is_named(monkeypatch, capsys, tmp_path):
    yanked = {"mpi4py-4.1.2.0-cp311.whl": "wrong ABI", "mpi4py-4.1.2.tar.gz": "wrong ABI", "mpi4py-4.0.0.tar.gz": False}
    page = {"name": "mpi4py", "files": [{"filename": name, "yanked": why} for name, why in yanked.items()]}
    (tmp_path / "mpi4py.json").write_text(json.dumps(page))
    monkeypatch.setenv("STAGEBENCH_ADVISORIES", str(tmp_path))
    assert supply.advisories() == 1
    assert "caffempi: mpi4py 4.1.2: yanked (wrong ABI)\n" in capsys.readouterr().out


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
