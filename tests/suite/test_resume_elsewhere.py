"""A run that was killed on one host goes on, for real, on another one: one with another name."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from suite.results.run_folder import RunFolder

CASE = ("--adapter", "reference", "--strategy", "single", "--workload", "mnist_small", "--batch", "2",
        "--precision", "float64", "--passes", "native", "--steps", "2", "--seconds", "0.05",
        "--set", "sampling.warmup_steps=2", "--set", "sampling.warmup_limit=0.2")  # fmt: skip
RENAMED = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')
PROCESSES = 4


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*RENAMED, "other", "true"], capture_output=True).returncode != 0,
    reason="no host of another name can be made here: it takes unshare --uts, so root",
)
def test_a_run_goes_on_on_another_host(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "suite.cli", "run", *CASE, "--processes", str(PROCESSES), "--no-proofs"]

    def on(host):
        return subprocess.Popen([*RENAMED, host, *command, "-o", str(folder)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)  # fmt: skip

    first, deadline = on("first"), time.monotonic() + 60
    while not list(folder.glob("records/*.json")):
        assert first.poll() is None, first.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    before = {path.name: path.read_bytes() for path in folder.glob("records/*.json")}
    assert len(before) < PROCESSES
    second = on("second")
    told, _ = second.communicate(timeout=120)
    assert second.returncode == 0, told
    assert "was begun on" not in told, "it is a machine of the same kind"
    records = list(RunFolder(folder).records())
    assert [record.outcome for record in records] == PROCESSES * ["ok"]
    assert {name: (folder / "records" / name).read_bytes() for name in before} == before
    assert {rank.hello.host for record in records for rank in record.ranks} == {"first", "second"}
