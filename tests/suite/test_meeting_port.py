"""The port of a launch is promised to nobody else until its processes are done."""

import subprocess
import sys
from pathlib import Path

import pytest

from stagebench.suite.processes import launch
from stagebench.suite.results.records import About
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.rendezvous import free_port
from tests.suite.measuring import Listener, case, run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def one_of(monkeypatch):
    """Two ports, of which the first is found for as long as it is free."""
    port = free_port()
    ports = port, port + 1
    found = iter([port, port, port + 1, port])
    monkeypatch.setattr(launch, "free_port", lambda: next(found))
    return ports


def promised(port: int) -> bool:
    return f"@stagebench-port-{port}\n" in Path("/proc/net/unix").read_text()


def test_two_launches_at_once_have_two_ports(one_of):
    with launch.meeting_port() as first, launch.meeting_port() as second:
        assert (first, second) == one_of
    with launch.meeting_port() as third:
        assert third == first


def test_a_port_of_another_process_is_left_alone_until_that_is_killed(one_of):
    program = (
        "import sys; from stagebench.suite.processes import launch; launch.free_port = lambda: int(sys.argv[1])\n"
        "with launch.meeting_port(): print('has it', flush=True); sys.stdin.read()"
    )
    tokens = [sys.executable, "-c", program, str(one_of[0])]
    with subprocess.Popen(tokens, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as other:
        assert other.stdout.readline() == b"has it\n"
        with launch.meeting_port() as own:
            assert own == one_of[1]
        other.kill()
    assert not promised(one_of[0])


def test_a_launch_keeps_its_port_until_it_ends(tmp_path, one_of):
    class Watching(Listener):
        seen = ()

        def message(self, *_):
            self.seen += (promised(one_of[0]),)

    watching = Watching()
    run(RunFolder(tmp_path / "run").begin(About(), "plan"), [case()], watching)
    assert watching.seen
    assert all(watching.seen)
    assert not promised(one_of[0])
