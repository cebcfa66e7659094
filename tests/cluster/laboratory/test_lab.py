"""The laboratory itself: what it refuses, what it builds, what it leaves. Engines run in it in test_hosts.py."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from stagebench.cluster.lab import build, network
from stagebench.cluster.lab.build import processes
from stagebench.cluster.lab.network import NETWORK, Layout, bits, checked_layout, switch_link, wire
from stagebench.cluster.lab.state import SETTING, State, entering, environment, folder, load
from stagebench.suite.errors import RequestError, Unavailable
from tests.support.errors import raising

# --- values --------------------------------------------------------------------


def test_hosts_have_names_and_addresses():
    layout = Layout("lab", 2)
    assert layout.hosts == ("lab1", "lab2")
    assert [layout.address(host) for host in layout.hosts] == ["10.77.0.1", "10.77.0.2"]
    assert Layout("other", 1, "192.168.7.0/28").address("other1") == "192.168.7.1"


@pytest.mark.parametrize(
    ("name", "count", "network", "words"),
    [
        *((name, 2, NETWORK, "lower-case") for name in ("lab1", "Lab", "", "a/b", "-x", "x" * 33)),  # or another host
        ("lab", 7, "10.1.0.0/29", "7 hosts do not fit into 10.1.0.0/29, which has room for 1 to 6"),
        ("lab", 0, NETWORK, "0 hosts do not fit"),
        ("lab", 1, "10.1.0.0/31", "room for 1 to 0"),
        ("lab", 1, "10.1.0.9/24", "has host bits set; write it such as"),
        ("lab", 1, "somewhere", "'somewhere': "),
    ],
)
def test_names_that_could_be_a_path_and_networks_without_room_are_refused(name, count, network, words):
    with pytest.raises(RequestError, match=words):
        checked_layout(name, count, network)


@pytest.mark.parametrize(
    "content", ["{", '{"format": 1}', '{"format": 1, "name": "x", "count": "two", "network": "", "rate": ""}']
)
def test_a_damaged_laboratory_is_named(tmp_path, monkeypatch, content):
    monkeypatch.setenv(SETTING, str(tmp_path))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "lab.json").write_text(content)
    with pytest.raises(RequestError, match=r"x: lab.json.*the folder"):
        load("x")


def test_rates():
    assert [bits(rate) for rate in ("1gbit", "2.5Gbit", "100kbit", "none")] == [1e9, 2.5e9, 1e5, None]
    large = "tbf rate 1000000000bit burst 250000 latency 50ms"
    assert network.discipline(1e9, paces=False) == large
    assert network.discipline(1e9, paces=True) == f"{large} peakrate 1050000000bit mtu 16384"
    assert network.pacing("1gbit") == "Messages of 16 KiB and less pass faster than 1gbit."
    assert network.pacing("none") == ""
    assert [network.packets(rate) for rate in (1e5, 1e9, 2.5e9, None)] == [8, 8, 20, 43]
    for rate in ("1", "fast", "125mbps", "1 gbit", "99kbit", "101gbit", "-1gbit", "nan", ""):
        with pytest.raises(RequestError, match=r"100kbit .*100gbit"):
            bits(rate)


# --- rights --------------------------------------------------------------------


def test_without_the_rights_or_the_programs_it_says_which_are_missing(laboratory, monkeypatch):
    with monkeypatch.context() as bare:
        bare.setattr(build, "CAPABILITIES", {63: "CAP_OF_NOBODY"})
        needs = "a laboratory needs CAP_OF_NOBODY; run it as root, in a container with --privileged"
        assert build.missing() == needs
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match=r"program ip, .*install hostname iproute2 mount util-linux"):
        build.up(Layout("other-lab", 1))
    assert not folder("other-lab").exists()


# --- the real one --------------------------------------------------------------


def inside(state, host, *command, **options):
    tokens = entering(state, host, list(command))
    return subprocess.run(tokens, env=environment(state), capture_output=True, text=True, timeout=300, **options)


def test_a_host_has_its_own_name_address_and_devices_and_a_command_its_own_exit_code(laboratory, tmp_path, monkeypatch):
    first, second = laboratory.layout.hosts
    program = "import socket; print(socket.gethostname(), socket.gethostbyname(%r), sorted(socket.if_nameindex()))"
    said = inside(laboratory, first, sys.executable, "-c", program % second).stdout
    assert said.startswith(f"{first} 10.77.0.2 ")
    assert "'eth0'" in said
    assert said.count("(") == 2  # and lo: nothing of the machine's
    monkeypatch.setenv("OF_MINE", "a  b")
    done = inside(laboratory, first, "sh", "-c", 'echo "$PWD $OF_MINE"; exit 7', cwd=tmp_path)
    assert (done.stdout, done.returncode) == (f"{tmp_path} a  b\n", 7)


def test_the_agent_is_used_like_ssh_and_takes_nothing_along(laboratory, monkeypatch):
    monkeypatch.setenv("OF_MINE", "x")
    first, second = laboratory.layout.hosts
    line = f'"$STAGEBENCH_LAUNCH_AGENT" -x -o A=b {second} \'echo $(hostname) "${{OF_MINE-none}}" $PWD; exit 3\''
    done = inside(laboratory, first, "sh", "-c", line)
    assert (done.stdout.split(), done.returncode) == ([second, "none", os.path.expanduser("~")], 3)
    done = subprocess.run([laboratory.agent, "nobody", "true"], capture_output=True, text=True)
    assert done.returncode == 255
    assert done.stderr.endswith(f": nobody is no host of the laboratory {laboratory.layout.name}\n")


@contextmanager
def started(tokens, word, **options):
    """A program that has said its word."""
    with subprocess.Popen(tokens, stdout=subprocess.PIPE, **options) as process:
        assert process.stdout.readline().decode().strip() == word
        yield process


SERVER = """
import socket
server = socket.create_server(("", 5000))
print("ready", flush=True)
client, _ = server.accept()
print(sum(iter(lambda: len(client.recv(65536)), 0)))
"""
CLIENT = "import socket; c = socket.create_connection((%r, 5000)); c.sendall(bytes(3_000_000))"


def test_bytes_cross_the_wire_and_are_counted(laboratory):
    first, second = laboratory.layout.hosts
    before = wire(first), wire(second)
    with started(entering(laboratory, second, [sys.executable, "-c", SERVER]), "ready") as server:
        assert [process.pid for process in processes(second)] == [server.pid]
        assert inside(laboratory, first, sys.executable, "-c", CLIENT % second).returncode == 0
        assert server.communicate(timeout=300)[0] == b"3000000\n"
    after = wire(first), wire(second)
    assert after[0].sent - before[0].sent > 3_000_000
    assert after[1].received - before[1].received > 3_000_000


def test_a_link_can_be_cut_and_mended_and_given_another_rate(laboratory):
    host = laboratory.layout.hosts[0]
    switch_link(host, on=False)
    assert not wire(host).up
    switch_link(host, on=True)
    assert wire(host).up
    route = subprocess.run(["ip", "-n", host, "route"], capture_output=True, text=True, check=True).stdout
    assert "dev eth0" in route
    assert "congctl cubic" in route
    queue = ["tc", "-n", host, "-json", "qdisc", "show", "dev", "eth0"]
    for rate, kind in (("none", "noqueue"), ("10mbit", "tbf"), ("1gbit", "tbf")):
        network.shape(laboratory.layout, rate)
        (told,) = json.loads(subprocess.run(queue, capture_output=True, text=True, check=True).stdout)
        assert told["kind"] == kind


def test_a_second_one_of_the_name_is_refused_and_the_first_stays(laboratory):
    name = laboratory.layout.name
    with raising(RequestError, name):
        build.up(laboratory.layout)
    assert load(name) == laboratory
    assert wire(laboratory.layout.hosts[0]).up


def test_two_of_other_names_stand_side_by_side_and_one_s_end_leaves_nothing(laboratory):
    state = build.up(Layout(f"test-{os.getpid()}-other", 3))
    stubborn = entering(state, state.layout.hosts[2], ["sh", "-c", "trap '' TERM; echo on; exec sleep 999"])
    with started(stubborn, "on"):
        build.down(state)
    assert left_of(state) == []
    assert wire(laboratory.layout.hosts[0]).up


def test_one_that_fails_in_between_leaves_nothing(laboratory, monkeypatch):
    real = build.connect

    def breaks(layout, host):
        real(layout, host)
        if host == layout.hosts[1]:
            raise Unavailable("no more")

    monkeypatch.setattr(build, "connect", breaks)
    state = State(Layout(f"test-{os.getpid()}-broken", 3))
    with pytest.raises(Unavailable, match="no more"):
        build.up(state.layout)
    assert left_of(state) == []


def test_somebody_else_s_namespace_is_left_alone(laboratory):
    name = f"test-{os.getpid()}-strange"
    subprocess.run(["ip", "netns", "add", f"{name}1"], check=True)
    try:
        with raising(RequestError, f"{name}1"):
            build.up(Layout(name, 1))
        assert (build.NAMESPACES / f"{name}1").exists()
    finally:
        subprocess.run(["ip", "netns", "del", f"{name}1"], check=True)


def left_of(state):
    """Traces of a laboratory: its folder, namespaces, their files, mounts, processes."""
    mounts = Path("/proc/self/mountinfo").read_text()
    found = [state.folder] if state.folder.exists() else []
    for name in state.layout.namespaces:
        found += [path for path in (build.NAMESPACES / name, build.FILES / name) if path.exists()]
        found += processes(name)
    return found + [line for line in mounts.splitlines() if str(state.folder) in line or state.layout.name in line]


# --- the commands --------------------------------------------------------------


COMMAND = [sys.executable, "-m", "stagebench.suite.cli", "lab"]


def lab(*words, env):
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=300, env=env)


def test_the_commands_from_up_to_down(laboratory, tmp_path):
    name = f"test-{os.getpid()}-cli"
    variables = {**os.environ, "STAGEBENCH_LAB": name}
    said = lab("up", "2", "--rate", "100mbit", env=variables)
    assert said.stdout.startswith(f"{name}1, {name}2 are up."), said.stderr
    assert f"lab exec --name {name} {name}1 -- " in said.stdout
    try:
        done = lab("exec", f"{name}2", "--", "sh", "-c", "hostname; exit 5", env=variables)
        assert (done.stdout, done.returncode) == (f"{name}2\n", 5)
        assert lab("exec", f"{name}3", "true", env=variables).returncode == 2
        assert lab("shape", "10mbit", env=variables).returncode == 0
        rows = json.loads(lab("status", "--json", env=variables).stdout)
        assert [(row["host"], row["rate"], row["link"]) for row in rows] == [
            (f"{name}{i}", "10mbit", "up") for i in (1, 2)
        ]
        command = [*COMMAND, "exec", f"{name}1", "--", "sh", "-c", "echo on; exec sleep 999"]
        with started(command, "on", env=variables) as sleeper:
            sleeper.send_signal(signal.SIGTERM)  # SIGINT is ignored where a shell put all of us into the background
            assert sleeper.wait(120) == -signal.SIGTERM
    finally:
        assert lab("down", env=variables).returncode == 0
    again = lab("down", env=variables)
    assert (again.returncode, "there is no laboratory" in again.stderr) == (2, True)
