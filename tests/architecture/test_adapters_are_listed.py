"""What names every adapter, or every framework, outside of its folder names all of them: nobody has to remember."""

import configparser
import importlib
import tomllib

import pytest


@pytest.fixture(scope="module")
def made(root):
    """Every adapter of this tree, whether it is registered or not."""
    plugins = [f"adapters.{path.parent.name}.plugin" for path in sorted(root.glob("adapters/*/plugin.py"))]
    return [adapter for plugin in plugins for adapter in importlib.import_module(plugin).stagebench_adapters()]


@pytest.fixture(scope="module")
def pyproject(root):
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def tox(root):
    config = configparser.RawConfigParser()
    config.read(root / "tox.ini")
    return config


def test_every_adapter_has_its_entry_point(made, pyproject):
    points = pyproject["project"]["entry-points"]["stagebench"]
    folders = {adapter.trainer.split(".")[1] for adapter in made}  # one may bring several adapters
    assert {name: target for name, target in points.items() if name.startswith("adapter-")} == {
        f"adapter-{folder}": f"adapters.{folder}.plugin" for folder in folders
    }


def test_the_type_checker_is_told_of_every_framework(made, pyproject):
    skipped = [each["module"] for each in pyproject["tool"]["mypy"]["overrides"] if "follow_imports" in each]
    ours = {"numpy", "PIL"}  # the controller has them too, with their types
    required = {name.split(".")[0] for adapter in made for name in adapter.requires} - ours
    assert [set(modules) for modules in skipped] == [{f"{name}.*" for name in required}]


def test_tox_makes_every_adapter_s_environment(made, tox):
    environments = {adapter.environment for adapter in made} - {None}
    names = [name for row in ("names", "compiled", "by_name") for name in tox["base"][row].split(",")]
    assert sorted(names) == sorted(environments)
    assert {f"testenv:{name}" for name in environments} <= set(tox.sections())


def test_every_environment_of_the_python_that_runs_tox_is_needed(tox):
    ours = {name for name in tox["base"]["names"].split(",") if "base_python" not in tox[f"testenv:{name}"]}
    assert set(tox["base"]["needed"].split(",")) == ours
