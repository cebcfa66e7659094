"""The import arrows of the house: contracts for import-linter, allow-lists for the two halves."""

import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.conftest import module_of
from tests.architecture.linked import PACKAGES, linked

TOP_LEVEL = {"docs", "tests", *PACKAGES}

# Distributions whose module has another name.
MODULES = {"pyyaml": "yaml", "pillow": "PIL", "scikit-learn": "sklearn", "mlflow-skinny": "mlflow"}

# Known exceptions, each with its reason.
BEYOND_NUMPY = {
    # Decoding is a library's: Pillow belongs to the framework's environment. simplejpeg is taken where it is installed:
    # Pillow for Python 3.6 has another decoder than the others'.
    "suite/worker/photographs.py": {"PIL", "simplejpeg"},
    "suite/worker/grpc_link.py": {"grpc"},
    "suite/worker/onnx_network.py": {"onnx"},  # only what exports a network imports it
    # Pillow reads headers; torchvision is looked for where a knob asks for it, which says what is missing.
    "adapters/pytorch/decoding.py": {"PIL", "torchvision"},
}

# These run in the Python that has an engine's package, as a model server's `..._program.py` does in its server's.
BEYOND_DEPENDENCIES = {"cluster/gang/spark_driver.py": {"pyspark", "py4j"}, "cluster/gang/ray_driver.py": {"ray"}}


def foreign(module: str, allowed: set[str]) -> bool:
    """Whether a module is neither standard nor one of the allowed packages or in one."""
    if module.split(".")[0] in sys.stdlib_module_names:
        return False
    return not any(module == name or module.startswith(name + ".") for name in allowed)


def allowed_in(path: Path) -> set[str]:
    """What a file of the worker half may import beside the standard library."""
    names = {"numpy"} | BEYOND_NUMPY.get(path.as_posix(), set())
    if path.parts[0] == "workloads":
        return names | {"stagebench.workloads"}
    names |= {"stagebench.workloads", "stagebench.suite.worker"}
    if path.parts[0] == "adapters" and len(path.parts) > 2:
        adapter = path.parts[1]
        return names | {f"stagebench.adapters.{adapter}"} | required_by(adapter) | engines_of(path)
    return names


def engines_of(path: Path) -> set[str]:
    """The packages that an adapter builds on, in its own package or module and nowhere else."""
    plugin = importlib.import_module(f"stagebench.adapters.{path.parts[1]}.plugin")
    own = {made.package: made.builds_on for made in plugin.stagebench_adapters()}
    packages = (module_of(place) for place in (path, *path.parents[:-1]))
    return {engine for package in packages for engine in own.get(package, ())}


def required_by(adapter: str) -> set[str]:
    """The modules that an adapter's declaration says its interpreter must have."""
    plugin = importlib.import_module(f"stagebench.adapters.{adapter}.plugin")
    return {name for made in plugin.stagebench_adapters() for name in made.requires}


def test_the_worker_half_imports_only_what_every_interpreter_has(worker_half, imports_of):
    every = ((path, module) for path, text in worker_half.items() for module in imports_of(text))
    wrong = [f"{path}: {module}" for path, module in every if foreign(module, allowed_in(path))]
    assert not wrong, "not in every framework's interpreter (an adapter declares its own in `requires`)"


def declared(root: Path) -> set[str]:
    """The modules of what stagebench depends on, with the makers of data sets."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + [each for name in extras if name != "conformance" for each in extras[name]]
    names = [re.match(r"[\w-]+", each)[0].lower() for each in wanted]
    return {MODULES.get(name, name) for name in names}


def frameworks(root: Path) -> set[str]:
    """The modules that the adapters require and the controller does not have."""
    found = {name.split(".")[0] for path in root.glob("adapters/*/plugin.py") for name in required_by(path.parent.name)}
    return found - declared(root)


def test_the_controller_imports_only_what_stagebench_depends_on(root, sources, worker_half, imports_of):
    elsewhere = {path for path in sources if path.stem.endswith("_program")}
    controller = {path: text for path, text in sources.items() if path not in {*worker_half, *elsewhere}}
    assert {path.parts[0] for path in controller} == {"adapters", "cluster", "reports", "stagebench.py", "suite"}
    allowed = declared(root) | {"stagebench"}
    wrong = [
        f"{path}: {module}"
        for path, text in controller.items()
        for module in imports_of(text)
        if foreign(module, allowed | BEYOND_DEPENDENCIES.get(path.as_posix(), set()))
    ]
    assert not wrong, "no framework here, and nothing that `dependencies` in pyproject.toml does not name"


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("import torch", True),
        ("from jax import numpy", True),
        ("import requests", True),
        ("from sklearn.datasets import load_sample_images", False),
        ("from stagebench.suite.contracts.case import Case", False),
        ("from suite.contracts.case import Case", True),
    ],
)
def test_the_controller_s_check_sees_what_it_should(root, imports_of, line, refused):
    (module,) = imports_of(line)
    assert foreign(module, declared(root) | {"stagebench"}) == refused


def test_plugins_import_only_the_core(sources, imports_of):
    plugins = {path: text for path, text in sources.items() if path.name == "plugin.py"}
    assert plugins
    wrong = [
        f"{path}: {module}"
        for path, text in plugins.items()
        for module in imports_of(text)
        if (foreign(module, {"stagebench.suite"}) or module.startswith("stagebench.suite.worker"))
        and not re.match(
            r"stagebench\.adapters\.(\w+\.plugin|open_mpi)\b", module
        )  # import-linter's contract says whose
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("place", "line", "refused"),
    [
        ("suite/worker/loop.py", "import pydantic", True),
        ("suite/worker/loop.py", "from stagebench.suite.contracts.case import Case", True),
        ("suite/worker/loop.py", "from PIL import Image", True),
        ("suite/worker/photographs.py", "from PIL import Image", False),
        ("workloads/graph.py", "from stagebench.suite.worker import job", True),
        ("adapters/reference/lower.py", "from stagebench.adapters.pytorch.lower import Net", True),
        ("adapters/reference/lower.py", "from stagebench.suite.worker.trainer import Setup", False),
        ("adapters/horovod/over_mxnet.py", "from stagebench.adapters.mxnet.base import MXNetTrainer", False),
        ("adapters/horovod/over_mxnet.py", "from stagebench.adapters.jax.base import JaxTrainer", True),
        ("adapters/horovod/ranks.py", "from stagebench.adapters.mxnet.base import MXNetTrainer", True),
    ],
)
def test_the_check_sees_what_it_should(imports_of, place, line, refused):
    found = [module for module in imports_of(f"def f():\n    {line}\n") if foreign(module, allowed_in(Path(place)))]
    assert bool(found) == refused


def lint(folder: Path) -> "subprocess.CompletedProcess[str]":
    pytest.importorskip("importlinter", reason="import-linter is a part of the lint environment")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    command += ["--no-cache", "--no-logo"]
    place = {"PYTHONPATH": str(folder), "PATH": "", "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=place)


def test_import_linter_keeps_the_contracts(tmp_path):
    result = lint(linked(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr


BROKEN = {
    "suite/errors.py": ("stagebench.reports", "Plugins stand on the core"),
    "workloads/graph.py": ("stagebench.suite.errors", "Plugins stand on the core"),
    "adapters/reference/plugin.py": ("stagebench.adapters.reference.base", "An adapter's controller side"),
    "adapters/reference/lower.py": ("pydantic", "The worker half needs nothing"),
}


@pytest.mark.slow
def test_import_linter_sees_each_broken_arrow(root, tmp_path):
    for top in TOP_LEVEL - {"tests"}:
        shutil.copytree(root / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "stagebench.py"):
        shutil.copy(root / file, tmp_path)
    for place, (module, _) in BROKEN.items():
        with (tmp_path / place).open("a") as file:
            file.write(f"\nimport {module}\n")
    result = lint(linked(tmp_path / "tree", tmp_path))
    assert result.returncode == 1, result.stdout + result.stderr
    for place, (module, contract) in BROKEN.items():
        assert [row for row in result.stdout.splitlines() if row.startswith(contract) and " BROKEN" in row]
        assert f"{module_of(Path(place))} -> {module} " in result.stdout


PROBE = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""


def test_the_controller_and_every_plugin_load_no_framework(root, sources):
    """In a process of its own, so that nothing else has loaded one; with the frameworks installed it could."""
    half = [module_of(path) for path in sources if path.parts[0] != "adapters" or path.name == "plugin.py"]
    run = ("__main__", "_driver", "_program")  # when imported; in an engine
    command = [sys.executable, "-W", "error", "-c", PROBE, *(name for name in half if not name.endswith(run))]
    place = {"PYTHONPATH": str(root)}
    result = subprocess.run(command, cwd=root, env=place, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    loaded = set(json.loads(result.stdout))
    assert {
        "stagebench.suite.plugins",
        "stagebench.suite.worker.main",
        "stagebench.workloads.graph",
        "stagebench.adapters.reference.plugin",
    } <= loaded
    assert {"torch", "jax"} <= frameworks(root)
    assert loaded & frameworks(root) == set()


def test_top_level_folders(root):
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout: which folders belong to the project cannot be told")
    folders = {line.split("/")[0] for line in tracked.stdout.splitlines() if "/" in line}
    assert {folder for folder in folders if not folder.startswith(".")} <= TOP_LEVEL
