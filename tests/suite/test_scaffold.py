"""`stagebench new-adapter`: names, files, and a package that is really installed, listed, linted and tested."""

import ast
import configparser
import inspect
import json
import os
import shutil
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stagebench.suite.cli.app import build
from stagebench.suite.errors import RequestError
from stagebench.suite.scaffold.write import optional, rendered, write
from stagebench.suite.worker.member import Member
from stagebench.suite.worker.trainer import Trainer
from stagebench.workloads.kinds import KINDS
from tests.architecture.linked import PACKAGES
from tests.support.errors import raising

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("scaffold")]  # one environment for all
SLOW = pytest.mark.skipif("STAGEBENCH_FETCH" not in os.environ, reason="tox -e scaffold makes environments for it")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my-adapter", "its name is a Python identifier too"),
        ("Lumen", "lower-case letters"),
        ("9lives", "such as 'lumen'"),
        ("", "cannot be called ''"),
        ("class", "a keyword of Python"),
        ("pytorch", "there is an adapter 'pytorch' already"),
        ("reference", "there is an adapter 'reference' already"),
    ],
)
def test_a_bad_name_is_refused(tmp_path, name, words):
    with pytest.raises(RequestError, match=words):
        write(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_not_touched_and_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "stagebench-lumen").mkdir()
    (tmp_path / "stagebench-lumen" / "mine").write_text("work")
    with raising(RequestError, "stagebench-lumen"):
        write("lumen", tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["stagebench-lumen", "mine"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="another place"):
        write("lumen", tmp_path / "file")


def test_the_command_says_what_comes_next(tmp_path):
    done = CliRunner().invoke(build(), ["new-adapter", "lumen", "-o", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "new" / "stagebench-lumen" / "pyproject.toml").is_file()
    for words in ("pip install", "-e '.[conformance]'", "stagebench env make lumen", "pytest"):
        assert words in done.output


def test_every_abstract_method_and_layer_kind_is_a_stub_with_the_contract_s_words():
    tree = ast.parse(rendered("lumen")["stagebench_lumen/base.py"])
    (klass,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    stubs = {node.name: node for node in klass.body if isinstance(node, ast.FunctionDef)}
    assert set(stubs) == set(Trainer.__abstractmethods__)
    for name, stub in stubs.items():
        source = textwrap.dedent(inspect.getsource(getattr(Trainer, name)))
        assert ast.get_docstring(stub) == ast.get_docstring(ast.parse(source).body[0])
        assert ast.unparse(stub.body[-1]) == f"raise unwritten(LumenTrainer.{name})"
    offered = {**vars(Member), **vars(Trainer)}
    assert set(optional()) == {name for name, each in offered.items() if callable(each) and name[0] != "_"} - set(stubs)
    tree = ast.parse(rendered("lumen")["stagebench_lumen/lower.py"])
    stubs = {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(KINDS) | {"lower"} == set(stubs)
    for name, kind in KINDS.items():
        for word in (*kind.attributes, *kind.initialisers, *kind.statistics):
            assert word in stubs[name], f"the stub of {name} does not name {word}"


def tox_ini():
    config = configparser.RawConfigParser()
    config.read_string(rendered("lumen")["tox.ini"])
    return config


def test_its_conformance_environment_makes_the_framework_s_first():
    config = tox_ini()
    (command,) = config["testenv:conformance"]["commands_pre"].split("\n")[1:]
    assert command.startswith("python -m tox run ")
    assert command.endswith(" -e lumen")
    assert "testenv:lumen" in config
    assert "tox" in config["testenv:conformance"]["deps"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """(folder, python): a wheel of this stagebench and, editable, a fresh scaffold, in an environment of their own."""
    pytest.importorskip("hatchling", reason="the build backend is a part of the tests' environment")
    home = tmp_path_factory.mktemp("stranger")
    folder = write("lumen", home)
    venv.create(home / "env", with_pip=True, symlinks=True)
    python = home / "env" / "bin" / "python"
    # What both packages depend on is borrowed from the environment of this test: nothing is downloaded.
    (site,) = (home / "env" / "lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "-q"]
    copy = home / "stagebench"  # building leaves nothing in the checkout, and the checkout is on nobody's path
    private = shutil.ignore_patterns(".*", "__pycache__")
    shutil.copytree(
        ROOT, copy, ignore=lambda folder, names: {*private(folder, names), *(["results"] * (folder == str(ROOT)))}
    )
    call(python, "-m", "pip", "wheel", *offline, "-w", home, copy)
    (wheel,) = home.glob("stagebench-*.whl")
    call(python, "-m", "pip", "install", *offline, "--force-reinstall", wheel)
    call(python, "-m", "pip", "install", *offline, "-e", folder)
    return folder, python


def call(*tokens, cwd=None, code=0, more=None):
    """Run to the end, outside of any checkout; the output. `more` are variables."""
    place = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | (more or {})
    tokens = [str(token) for token in tokens]
    done = subprocess.run(tokens, cwd=cwd or "/", env=place, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_wheel_ships_the_suite_and_the_templates(installed):
    _, python = installed
    program = "import stagebench, stagebench_conformance, stagebench.suite.scaffold.write as w;"
    program += "stagebench.plan('quick'); print(len(w.rendered('x')));"
    program += "print(stagebench_conformance.__file__, stagebench.__file__)"
    count, places = call(python, "-c", program).splitlines()
    assert int(count) >= 9
    assert places.count(str(python.parents[1])) == 2, "both come from the wheel"


def test_a_folder_with_packages_of_the_same_names_keeps_them_and_breaks_nothing(installed, tmp_path):
    _, python = installed
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWN = True")
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    page = (ROOT / "docs" / "python.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    owned = f"import {', '.join(PACKAGES)}\nassert all(each.OWN for each in ({', '.join(PACKAGES)}))\n"
    for order in (program + owned, owned + program):
        assert call(python, "-c", order, cwd=tmp_path, more=home).count("can run") == 2
    command = python.with_name("stagebench")
    assert "NumPy" in call(command, "show", "results/mine", cwd=tmp_path, more=home)
    call(python, "-m", "stagebench.suite.cli", "report", "results/mine", "-o", "page", cwd=tmp_path, more=home)
    assert (tmp_path / "page" / "index.html").exists()


def environment_of(python, name, home):
    """A row of `stagebench env list`."""
    rows = json.loads(call(python, "-m", "stagebench.suite.cli", "env", "list", "--json", more=home))
    return next(row for row in rows if row["name"] == name)


def test_a_fresh_scaffold_s_environment_can_be_made(installed, tmp_path):
    _, python = installed
    row = environment_of(python, "lumen", {"HOME": str(tmp_path)})
    assert (row["made"], row["python"]) == ("no", "3.11-3.14")
    assert "environment.txt" in tox_ini()["testenv:lumen"]["deps"], "tox installs from the same file"


@SLOW
def test_the_wheel_makes_an_environment_for_itself_in_an_empty_home(installed, tmp_path):
    """The smallest that is needed by nothing else: NumPy, mpi4py and an MPI library, 26 MB; and a third party's."""
    _, python = installed
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    call(python, "-m", "stagebench.suite.cli", "env", "make", "lumen", more=home, code=1)  # it is made, and a stub
    assert environment_of(python, "lumen", home)["made"] == "yes"
    call(python, "-m", "stagebench.suite.cli", "env", "make", "mpi-mpich", more=home)
    row = environment_of(python, "mpi-mpich", home)
    assert (row["made"], row["path"]) == ("yes", str(tmp_path / "data/stagebench/envs/mpi-mpich"))
    backends = json.loads(call(python, "-m", "stagebench.suite.cli", "list", "backends", "--json", more=home))
    assert [each["here"] for each in backends if each["backend"] == "mpi4py-mpich"] == [True]
    call(python, "-m", "stagebench.suite.cli", "env", "remove", "mpi-mpich", more=home)
    assert not Path(row["path"]).exists()


def test_a_fresh_scaffold_is_listed_and_shown_by_doctor(installed):
    _, python = installed
    listed = json.loads(call(python, "-m", "stagebench.suite.cli", "list", "adapters", "--json"))
    assert "lumen" in [row["name"] for row in listed]
    environ = {**os.environ, "STAGEBENCH_TOX_DIR": "/none"}  # no framework of another environment is started
    tokens = [python, "-m", "stagebench.suite.cli", "doctor", "--json"]
    found = subprocess.run(tokens, env=environ, cwd="/", capture_output=True, text=True)
    (row,) = (row for row in json.loads(found.stdout)["adapters"] if row["name"] == "lumen")
    assert not row["ready"], "any Python with NumPy does, until it names its framework; but it is a stub"
    assert "LumenTrainer.start in stagebench_lumen/base.py is a stub still" in row["missing"]


def test_a_fresh_scaffold_is_clean(installed):
    folder, _ = installed
    ruff = shutil.which("ruff", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    if ruff is None:
        pytest.skip("ruff is a part of the lint environment")
    call(ruff, "format", "--check", "--no-cache", ".", cwd=folder)
    call(ruff, "check", "--no-cache", ".", cwd=folder)


def test_the_conformance_suite_of_a_fresh_scaffold_fails_at_the_stubs_and_says_so(installed):
    folder, python = installed
    told = call(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder, code=1)
    stub = "LumenTrainer.start in stagebench_lumen/base.py is a stub still; write what its docstring says"
    lines = [line for line in told.splitlines() if line.startswith("E ")]
    assert any(stub in line for line in lines), told
    failed = {line.split("::")[-1].split(" ")[0] for line in told.splitlines() if line.startswith("FAILED")}
    assert failed == {
        "test_it_drops_out_predicts_and_steps_alone[single-default]",
        "test_two_threads_share_the_work[single-default]",
        "test_it_learns",
        "test_every_kind_of_layer_is_proven[single-default]",
        "test_every_kind_of_layer_over_tokens_is_proven",
        "test_it_is_proven_and_measures_every_pass_that_has_something_to_measure[single-default]",
        "test_it_reads_data_in_a_pass_of_its_own",
        "test_every_reader_delivers_the_same_samples[folder]",
        "test_every_reader_delivers_the_same_samples[arrays]",
        "test_a_fault_of_its_framework_is_one_row_and_the_others_go_on",  # the flood would be survived
    }, told


@SLOW
def test_the_tox_environment_of_a_fresh_scaffold_finds_a_built_wheel(installed, tmp_path):
    """And two folders to look in; the suite runs as far as needs no framework."""
    pytest.importorskip("tox", reason="tox is a part of the tests' environment")
    folder, _ = installed
    copy = shutil.copytree(folder, tmp_path / folder.name)
    places = " ".join((str(tmp_path), str(folder.parent), os.environ.get("PIP_FIND_LINKS", "")))
    tokens = [sys.executable, "-m", "tox", "run", "-e", "conformance", "--", "-k", "declar or refuse", "-q"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOX", "UV_FIND", "PYTHONPATH"))}
    done = subprocess.run(
        tokens, cwd=copy, env={**kept, "PIP_FIND_LINKS": places}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
