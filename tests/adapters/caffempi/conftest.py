import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.alike import trainer_of
from tests.support import processes

pytest.importorskip("mpi4py")

trainer = trainer_of("caffempi")


@pytest.fixture
def mpirun(tmp_path):
    """Run one of the programs beside the tests on some ranks; gives the JSON that its rank 0 wrote."""

    def run(program, ranks, *arguments):
        output = tmp_path / "output.json"
        engine = [*(processes.mpiexec() or ["mpiexec"]), "-n", str(ranks)]
        command = [*engine, sys.executable, str(Path(__file__).with_name(program)), str(output), *arguments]
        environ = processes.mpi_variables()
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        found = json.loads(output.read_text())
        assert found["world"] == ranks
        return found

    return run
