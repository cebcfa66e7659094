"""The image's recipe: what it copies is there, and it makes what the manifests' pods run."""

import configparser
import re
import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "cluster" / "kubernetes" / "Dockerfile"


@pytest.fixture(scope="module")
def steps():
    """(instruction, arguments) of each."""
    lines = [line for line in RECIPE.read_text().splitlines() if not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in whole if line.strip()]


def of_kind(steps, kind):
    return [arguments for instruction, arguments in steps if instruction == kind]


def test_every_line_is_an_instruction_and_what_it_copies_is_there_and_not_ignored(steps):
    assert {instruction for instruction, _ in steps} <= {"FROM", "RUN", "ENV", "ARG", "WORKDIR", "COPY"}
    for command in of_kind(steps, "RUN"):
        shlex.split(command)  # quotes that end
    sources = {name for each in of_kind(steps, "COPY") for name in each.split()[:-1]}
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name in sources:
        assert (ROOT / name).exists()
        assert any(name == each or name.startswith(f"{each}/") for each in kept), f"{name} is ignored"
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    assert {*hatch["build"]["targets"]["wheel"]["only-include"], "stagebench.py", "hatch_build.py"} <= sources


def test_the_pins_that_tox_reads_are_copied_before_it_runs():
    pins = set(re.findall(r"-r (\w+/environments)/", (ROOT / "tox.ini").read_text()))
    before, _, _ = RECIPE.read_text().partition("RUN tox run")
    assert len(pins) == 2
    assert all(f"COPY {folder} {folder}\n" in before for folder in pins)


def test_it_makes_the_environment_of_every_framework_and_has_what_the_pods_ask_for(steps):
    (made,) = (each.partition("=")[2].split(",") for each in of_kind(steps, "ARG") if each.startswith("ENVIRONMENTS="))
    tox = configparser.RawConfigParser()
    tox.read(ROOT / "tox.ini")
    assert made == [*tox["base"]["names"].split(","), *tox["base"]["compiled"].split(",")]
    installed = set(re.findall(r"[\w.+-]+", of_kind(steps, "RUN")[0]))
    assert {"openssh-server", "openssh-client", "openmpi-bin", "libgomp1", "libquadmath0", "g++", "make"} <= installed
    assert "STAGEBENCH_TOX_DIR=/opt/tox" in of_kind(steps, "ENV")[0]


def test_the_page_s_arguments_are_the_recipe_s(steps):
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    table = page[page.index("| `--build-arg`") : page.index("## Results")]
    named = set(re.findall(r"`([A-Z]\w+)=?[^`]*`", table))
    assert named == {"ENVIRONMENTS", "PYTHON36", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"}
    assert named <= {each.partition("=")[0] for each in of_kind(steps, "ARG")}
    assert f"-f {RECIPE.relative_to(ROOT)} " in page
