"""What the tests of whole runs in the laboratory share."""

import os
import sys
from pathlib import Path

import pytest

from cluster.lab.agent import entering, environment
from suite.environments.find import tox_folders


@pytest.fixture(scope="session")
def head_node(laboratory, tmp_path_factory):
    """Gives tokens and variables of a command in the first host, with the tiny adapter installed as a third party's."""
    about = tmp_path_factory.mktemp("site") / "tiny-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[stagebench]\nadapter-tiny = tinyadapter.plugin\n")
    path = os.pathsep.join(map(str, (about.parent, Path(__file__).parents[1], *sys.path[1:])))

    def command(*words):
        # Asked for anew: a Slurm that was started since is in the environment, too.
        variables = {**environment(laboratory), "PYTHONPATH": path}
        return entering(laboratory, laboratory.layout.hosts[0], list(words)), variables

    return command


@pytest.fixture
def pytorch():
    """The interpreter of PyTorch's environment."""
    found = [folder / "pytorch" / "bin" / "python" for folder in tox_folders()]
    for python in filter(Path.exists, found):
        return python
    pytest.skip("no environment pytorch (tox run -e pytorch makes it; STAGEBENCH_TOX_DIR says where)")
