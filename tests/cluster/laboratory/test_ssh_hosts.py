"""`ssh` over two hosts of a laboratory: through its own agent, and through a real sshd where there is one."""

import json
import os
import pwd
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from stagebench.cluster.lab import build, network
from stagebench.cluster.lab.build import processes
from stagebench.cluster.lab.state import entering, environment
from stagebench.cluster.logins import AGENT
from stagebench.suite.contracts.case import Placement
from tests.support.started import wait_until

HERE = Path(sys.executable)
CHECKOUT = Path(__file__).parents[3]
DEBIAN = "127.0.0.1 localhost\n127.0.1.1 {own}\n{address} {other}\n"  # a host's own name, as its installer writes it


@pytest.fixture
def controller(laboratory, job, tmp_path):
    """Starts a controller in the first host; it launches two ranks, one on each."""
    first, second = laboratory.layout.hosts

    def start(knobs=None, hosts=(first, second), silence=50, **variables):
        request = job(Placement(nodes=2, launcher="ssh", hosts=hosts), HERE, strategy="meets", knobs=knobs)
        asked = {"hosts": hosts, "folder": str(request.folder), "command": request.command, "python": str(HERE)}
        asked.update(environ=request.environ, port=request.port, silence=silence)
        (tmp_path / "asked.json").write_text(json.dumps(asked))
        program = [sys.executable, str(Path(__file__).with_name("in_host.py")), str(tmp_path / "asked.json")]
        place = {**environment(laboratory), "PYTHONPATH": str(CHECKOUT), **variables}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(entering(laboratory, first, program), env=place, cwd=tmp_path, **pipes)

    return start


def told(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out)


def people(host):
    """Command lines of what runs in a host, but for sshd's own."""
    lines = []
    for process in processes(host):
        with suppress(psutil.NoSuchProcess):  # gone, or about to be
            lines.append(" ".join(process.cmdline()))
    return [line for line in lines if line and "sshd" not in line.partition(" ")[0]]


def stopped(process):
    try:
        return process.status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("turn", [1, -1], ids=["from-the-first", "from-the-second"])
def test_ranks_run_on_their_hosts_and_meet_on_the_wire(laboratory, controller, turn):
    hosts = laboratory.layout.hosts[::turn]
    before = network.wire(hosts[0])
    found = told(controller(hosts=hosts))
    assert (found["outcome"], found["reason"]) == ("ok", "")
    assert found["ranks"] == [[host, f"tcp: {laboratory.layout.address(host)}"] for host in hosts]
    assert network.wire(hosts[0]).received > before.received + 500


def test_hosts_whose_own_names_mean_themselves_alone_meet_all_the_same(laboratory, controller):
    hosts = laboratory.layout.hosts
    files = {host: build.FILES / host / "hosts" for host in hosts}
    usual = {host: path.read_text() for host, path in files.items()}
    try:
        for host, other in (hosts, hosts[::-1]):
            files[host].write_text(DEBIAN.format(own=host, other=other, address=laboratory.layout.address(other)))
        found = told(controller())
    finally:
        for host, path in files.items():
            path.write_text(usual[host])
    assert found["ranks"] == [[host, f"tcp: {laboratory.layout.address(host)}"] for host in hosts], found["reason"]


def test_the_interface_is_the_one_that_leads_there(laboratory):
    first, second = laboratory.layout.hosts
    ask = "import sys; from stagebench.suite.worker.rendezvous import *; "
    ask += "print(interface_of(address_towards(sys.argv[1])))"
    for host in (first, second):  # to itself as to the other
        tokens = [sys.executable, "-c", ask, laboratory.layout.address(first)]
        place = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        done = subprocess.run(entering(laboratory, host, tokens), env=place, capture_output=True, text=True, check=True)
        assert done.stdout == "eth0\n"


def test_a_frozen_rank_on_the_other_host_is_a_timeout_and_nothing_is_left_there(laboratory, controller):
    found = told(controller({"dies": 1, "signal": "SIGSTOP"}, silence=5))
    assert found["outcome"] == "timeout"
    wait_until(lambda: people(laboratory.layout.hosts[1]) == [])


# --- a real sshd ---------------------------------------------------------------


@pytest.fixture
def logins(laboratory, tmp_path):
    """The variables of a controller that reaches the second host through sshd; both hosts have a home of their own."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not sshd or not shutil.which("ssh-keygen"):
        pytest.skip("no sshd to log in to: apt-get install openssh-server")
    first, second = laboratory.layout.hosts
    home, layers = tmp_path / "home", [build.FILES / host / "passwd" for host in (first, second)]
    own_home(home, layers)
    keys(home, second)
    Path("/run/sshd").mkdir(exist_ok=True)  # as its service makes it
    options = ["UsePAM=no", "StrictModes=no", "PermitRootLogin=prohibit-password", f"PidFile={home}/pid"]
    tokens = [sshd, "-D", "-f", "/dev/null", "-h", str(home / "host"), "-E", str(home / "log")]
    tokens += [token for option in options for token in ("-o", option)]
    with subprocess.Popen(entering(laboratory, second, tokens)) as server:
        wait_until(lambda: (home / "pid").exists())
        yield {AGENT: ""}
        server.terminate()
    for path in layers:
        path.unlink()


def own_home(home, layers):
    """Who root is in a host: a home that is this test's, and sshd's user."""
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    home.chmod(0o755)
    lines = [
        ":".join(map(str, (*one[:5], home if one.pw_uid == 0 else one.pw_dir, one.pw_shell))) for one in pwd.getpwall()
    ]
    if "sshd" not in [one.pw_name for one in pwd.getpwall()]:
        lines.append("sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin")
    for path in layers:
        path.write_text("\n".join(lines) + "\n")


def keys(home, host):
    """A person's key that the host takes, a host's key that the person knows."""
    for path in (home / "host", home / ".ssh" / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    shutil.copy(home / ".ssh" / "id_ed25519.pub", home / ".ssh" / "authorized_keys")
    (home / ".ssh" / "known_hosts").write_text(f"{host} {(home / 'host.pub').read_text()}")


def test_through_a_real_sshd_ranks_meet_and_a_frozen_one_is_ended(laboratory, controller, logins):
    first, second = laboratory.layout.hosts
    assert [host for host, _ in told(controller(**logins))["ranks"]] == [first, second]
    found = told(controller({"dies": 1, "signal": "SIGSTOP"}, silence=5, **logins))
    assert found["outcome"] == "timeout"
    wait_until(lambda: people(second) == [])


def test_through_a_real_sshd_nothing_outlives_a_killed_controller(laboratory, controller, logins):
    second = laboratory.layout.hosts[1]
    with controller({"dies": 1, "signal": "SIGSTOP"}, **logins) as process:
        wait_until(lambda: any(map(stopped, processes(second))))
        process.kill()
    wait_until(lambda: people(second) == [])
