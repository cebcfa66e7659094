"""An adapter is found by its folder; what else names every one of them names all: nobody has to remember."""

import configparser
import importlib
import shutil
import subprocess
import sys

import pytest

from suite.plugins import adapters

LUMEN = """
from suite.contracts.adapter import Adapter, Capabilities, Strategy
from suite.contracts.hooks import hookimpl


class Lumen(Adapter):
    contract = 3
    name, title, package = "lumen", "Lumen", "adapters.lumen"
    capabilities = Capabilities((Strategy("single", "adapters.lumen.base:LumenTrainer", "one rank"),))


@hookimpl
def stagebench_adapters():
    return [Lumen()]
"""


@pytest.fixture(scope="module")
def made(root):
    """Every adapter of this tree, read from its folder."""
    plugins = [f"adapters.{path.parent.name}.plugin" for path in sorted(root.glob("adapters/*/plugin.py"))]
    return [adapter for plugin in plugins for adapter in importlib.import_module(plugin).stagebench_adapters()]


@pytest.fixture(scope="module")
def tox(root):
    config = configparser.RawConfigParser()
    config.read(root / "tox.ini")
    return config


def test_a_folder_with_a_plugin_is_an_adapter(made):
    assert made
    assert {type(each) for each in made} <= {type(each) for each in adapters().values()}


def test_a_new_folder_is_found_without_a_change_elsewhere(root, tmp_path, monkeypatch):
    copied = tmp_path / "adapters"
    (copied / "lumen").mkdir(parents=True)
    for name in ("__init__.py", "plugin.py"):
        shutil.copy(root / "adapters" / name, copied / name)
    (copied / "lumen" / "plugin.py").write_text(LUMEN)
    code = "from suite.plugins import adapters; print(*adapters())"
    monkeypatch.chdir(tmp_path)  # -c looks here first
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["lumen"], done.stderr


def test_every_file_of_a_strategy_is_one_s_trainer_and_a_lowering_is_short(made, root):
    for adapter in made:
        named = {each.trainer.partition(":")[0].rpartition(".")[2] for each in adapter.capabilities.strategies}
        folder = root / adapter.package.replace(".", "/") / "strategies"
        assert {path.stem for path in folder.glob("[!_]*.py")} <= named
    found = {path: len(path.read_text().splitlines()) for path in root.glob("adapters/**/lower.py")}
    assert found
    assert not {path: lines for path, lines in found.items() if lines >= 300}


def test_tox_makes_every_adapter_s_environment_and_needs_those_of_its_own_python(made, tox):
    environments = {adapter.environment for adapter in made} - {None}
    names = [name for row in ("names", "compiled", "by_name") for name in tox["base"][row].split(",")]
    assert sorted(names) == sorted(environments)
    assert {f"testenv:{name}" for name in environments} <= set(tox.sections())
    ours = {name for name in tox["base"]["names"].split(",") if "base_python" not in tox[f"testenv:{name}"]}
    assert set(tox["base"]["needed"].split(",")) == ours
