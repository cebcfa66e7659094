"""The proof of an out-of-memory kill: the kernel's count, as it is, and a real kill where groups can be made."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stagebench.suite.contracts.engine_messages import CODEC, FILE, OomKills
from stagebench.suite.plugins import adapters
from stagebench.suite.processes.evidence import ran_out
from stagebench.suite.worker import guard
from stagebench.suite.worker.guard import oom_kills
from tests.support.memory import small_group

CHECKOUT = Path(__file__).parents[2]
LIMIT = 120 << 20
VERSION_1 = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.events": "low 0\noom 5\noom_kill 3\n"}, 3),
        ({"proc/self/cgroup": "4:cpu,memory:/a\n0::/\n", f"{VERSION_1}/a/memory.oom_control": "oom_kill 2\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "proc/vmstat": "pgfault 9\noom_kill 7\n"}, 7),
        ({}, 0),
    ],
    ids=["version 2", "version 1", "machine", "nobody counts"],
)
def test_the_kernel_s_count_is_read_where_it_stands(tmp_path, files, count):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert oom_kills(f"{tmp_path}/") == count


# Whether memory ran out, the adapter, where it was said ("here": under `memory_limit`), the words; after tabs.
SAID = [line.split("\t") for line in (CHECKOUT / "tests/fixtures/out-of-memory.tsv").read_text().splitlines()]


@pytest.mark.parametrize(("proven", "adapter", "source", "text"), SAID)
def test_each_framework_s_own_words_say_that_memory_ran_out(proven, adapter, source, text):
    assert ran_out(text, adapters()[adapter].out_of_memory) == (proven == "yes"), source


# A controller inside a small memory group runs one rank that eats more than the group may have.
CONTROLLER = """
import json, os, sys
from pathlib import Path
group, folder, checkout = sys.argv[1:]
Path(group, "cgroup.procs").write_text(str(os.getpid()))
sys.path.insert(0, checkout)
from stagebench.suite.processes.attempt import Limits, run
from stagebench.suite.contracts.launcher import Process
eats = "import os; open('rank-0.log', 'w').write('eating'); x = b'x' * (400 << 20)"
result = run([Process((sys.executable, "-c", eats), rank=0)], 1, Path(folder), Limits(20, 20), print)
print(json.dumps([result.outcome, result.reason, result.evidence["oom_kills"]]))
"""


@pytest.fixture
def group():
    with small_group(LIMIT) as folder:
        yield folder


@pytest.mark.out_of_memory
@pytest.mark.parametrize("own", [0, 70 << 20], ids=["a rank", "the rank, though the controller has more"])
def test_a_rank_that_the_kernel_kills_for_want_of_memory_is_oom(group, tmp_path, own):
    """Most of what the group may have: to the kernel alone, the controller would be the one to kill."""
    program = CONTROLLER.replace("result = ", f"much = b'x' * {own}\nresult = ")
    tokens = [sys.executable, "-c", program, str(group), str(tmp_path), str(CHECKOUT)]
    done = subprocess.run(tokens, capture_output=True, text=True, timeout=300, check=False)
    outcome, reason, kills = json.loads(done.stdout.splitlines()[-1])
    assert (outcome, kills) == ("oom", 1)
    assert reason == (
        "rank 0 was ended by SIGKILL before its first message "
        "(the kernel ended 1 process(es) for want of memory meanwhile); its last lines: eating"
    )


@pytest.mark.out_of_memory
def test_the_far_end_of_a_login_reports_its_own_kernel_s_kills(group, tmp_path):
    eats = [sys.executable, "-c", "x = b'x' * (400 << 20)"]
    options = ["--lifeline=60", "--patience=1", "--left=1", f"--report={tmp_path / FILE}"]
    inside = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(group)]
    far = subprocess.Popen(
        [*inside, sys.executable, "-I", "-S", guard.__file__, *options, *eats], stdin=subprocess.PIPE
    )
    assert far.wait(timeout=300) == 128 + 9
    assert far.stdin is not None
    far.stdin.close()
    [line] = (tmp_path / FILE).read_text().splitlines()
    assert CODEC.decode(line) == OomKills(socket.gethostname(), 1)
