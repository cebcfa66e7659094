"""`ssh`: exact tokens, what it refuses, real ranks behind logins that lead to this same machine; engines' login."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stagebench.cluster import logins
from stagebench.cluster.logins import AGENT, GUARD, write_daemon_login
from stagebench.cluster.nodes import meeting_address
from stagebench.cluster.ssh import ENTER, Ssh
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import LOGINS, Request
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.plan import load, resolve
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.processes import watchdog
from stagebench.suite.processes.evidence import sidecar
from stagebench.suite.worker import guard
from stagebench.suite.worker.messages import Hello, Joined, of_type
from tests.support import plans
from tests.support.errors import raising
from tests.support.started import DEATHS

HERE = Path(sys.executable)
OTHER = "127.0.0.2"  # this machine too, under an address that `here` does not know
TWO = Placement(nodes=2, launcher="ssh", hosts=("localhost", OTHER))
# As sshd does: the words become one line for a shell, with the variables of a login and no others.
TWIN = '#!/bin/sh\nshift\nexec env -i HOME="$HOME" PATH=/usr/bin:/bin /bin/sh -c "$*"\n'


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Sets the launch agent to a script."""

    def make(text):
        path = script(tmp_path / "agent", text)
        monkeypatch.setenv(AGENT, str(path))
        logins.missing.cache_clear()
        return path

    yield make
    logins.missing.cache_clear()


@pytest.fixture
def twin(program):
    return program(TWIN)


def request_for(folder, placement=TWO, sidecars=()):
    return Request(placement, ("worker", "a b"), HERE, {"A": "x 'y' $z"}, folder, 29500, sidecars)


# --- tokens --------------------------------------------------------------------


def test_ranks_of_this_machine_need_no_login(tmp_path):
    first, second = Ssh().processes(request_for(tmp_path, Placement(ranks_per_node=2)))
    assert first.tokens == second.tokens == ("worker", "a b")
    assert (second.rank, second.environ["LOCAL_RANK"], second.environ["MASTER_ADDR"]) == (1, "1", "127.0.0.1")
    assert list(tmp_path.iterdir()) == []


def test_ranks_elsewhere_are_given_folder_variables_and_lifeline_through_the_shell(tmp_path, twin, monkeypatch):
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")  # what a person said of interfaces goes along
    placement = Placement(nodes=2, ranks_per_node=2, hosts=TWO.hosts)
    *_, near, far, last = Ssh().processes(request_for(tmp_path, placement))
    assert near.tokens == ("worker", "a b")
    *start, line = far.tokens
    assert start == [sys.executable, "-I", "-S", guard.__file__, "--login=5", str(twin), OTHER]
    assert far.environ == {}
    shell, flag, text, name, folder, proof, *rest = shlex.split(line)
    assert (shell, flag, name, folder) == ("sh", "-c", "stagebench", str(tmp_path))
    assert (tmp_path / GUARD).read_text().startswith(f"# {proof}\n")
    assert text.endswith('exec env "$@"')
    assert rest == [
        "A=x 'y' $z",
        "LOCAL_RANK=0",
        "MASTER_ADDR=127.0.0.1",
        "MASTER_PORT=29500",
        "NCCL_SOCKET_IFNAME=ib0",
        "RANK=2",
        "STAGEBENCH_LOCAL_RANK=0",
        "STAGEBENCH_RANK=2",
        "STAGEBENCH_WORLD=4",
        "WORLD_SIZE=4",
        *(str(HERE), "-I", "-S", "-B", str(tmp_path / GUARD), "--lifeline=20", "--patience=1.5", "--left=1.5"),
        *(f"--report={tmp_path}/engine.jsonl", "worker", "a b"),
    ]
    assert "LOCAL_RANK=1" in shlex.split(last.tokens[-1])
    assert [far.rank, last.rank] == [2, 3]


def test_a_profile_s_pinning_and_proxies_end_at_the_login_and_a_case_s_own_settings_do_not(tmp_path):
    (tmp_path / GUARD).write_text("# proof\n")
    words = ["sh", "-c", ENTER, "stagebench", str(tmp_path), "proof", "OMP_PLACES=ours", "env"]
    profile = {"PATH": os.defpath, "http_proxy": "theirs", "OMP_PROC_BIND": "theirs", "OMP_PLACES": "theirs"}
    found = subprocess.check_output(words, env=profile, text=True)
    assert "OMP_PLACES=ours\n" in found
    assert "theirs" not in found


def test_companions_stand_on_the_first_host_and_keep_their_name(tmp_path, twin):
    tokens = (str(HERE), "-u", "/bundle/server.py", "scheduler")
    away = Placement(nodes=2, hosts=(OTHER, "localhost"))
    *_, server = Ssh().processes(request_for(tmp_path, away, (tokens,)))
    assert server.sidecar
    assert server.tokens[-2] == OTHER
    assert shlex.split(server.tokens[-1])[-4:] == list(tokens)
    assert "RANK=0" not in shlex.split(server.tokens[-1])
    assert sidecar(server) == "server.py scheduler"
    *_, server = Ssh().processes(request_for(tmp_path, TWO, (tokens,)))
    assert server.tokens == tokens


# --- refusals ------------------------------------------------------------------


def test_every_node_wants_a_host_that_is_known_and_that_others_can_reach(twin):
    lacking = Ssh().missing(Placement(nodes=2, hosts=("a",)), HERE)
    assert "asks for 2 nodes and names 1 hosts (a); name one" in lacking
    lacking = Ssh().missing(Placement(nodes=2, hosts=("localhost", "no.such.host.invalid")), HERE)
    assert lacking.startswith("the host 'no.such.host.invalid' has no IPv4 address that this machine knows (")
    remedy = "and ranks meet over IPv4; correct the name in `hosts` or --hosts, or write that address in its place"
    assert lacking.endswith(remedy)
    with raising(Unavailable, "127.0.0.2"):
        meeting_address(Placement(nodes=2, hosts=(OTHER, "192.0.2.1")))


def test_an_agent_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(AGENT, "/no/such/agent")
    told = "STAGEBENCH_LAUNCH_AGENT is '/no/such/agent', which is no program here; name one that is used like ssh"
    assert Ssh().missing(TWO, HERE).startswith(told)
    with pytest.raises(RequestError, match="no program"):
        Ssh().processes(request_for(tmp_path))
    monkeypatch.delenv(AGENT)
    options = "-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
    assert logins.login("b") == ("ssh", *options.split(), "--", "b"), "which never asks"
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no ssh on PATH to log in to other hosts with: apt-get install" in Ssh().missing(TWO, HERE)


def test_a_login_that_is_refused_or_never_comes_tells_what_was_said_and_what_must_work(program, monkeypatch):
    path = program("#!/bin/sh\necho 'me@there: Permission denied (publickey).' >&2\nexit 255\n")
    assert Ssh().missing(TWO, HERE) == (
        f"no login on the host '{OTHER}' (agent ended with exit code 255: me@there: Permission denied (publickey).); "
        f"`{path} {OTHER} true` must work without a question: correct the name, or let the host know your key"
    )
    monkeypatch.setattr(logins, "SECONDS", 0.3)
    program("#!/bin/sh\nsleep 60\n")
    assert "timed out after 0.3 seconds" in Ssh().missing(TWO, HERE)


def test_a_host_is_asked_once_and_an_interpreter_that_it_lacks_is_named(program, tmp_path):
    program(TWIN.replace("shift\n", f"shift\necho x >> {tmp_path}/asked\n", 1))
    for _ in range(3):
        assert Ssh().missing(TWO, HERE) is None
    assert (tmp_path / "asked").read_text() == "x\n"
    lacking = Ssh().missing(TWO, Path("/no/such/python"))
    assert lacking.startswith(f"the host '{OTHER}' has no interpreter /no/such/python: environments must lie at the")


# --- real ranks ----------------------------------------------------------------


def test_real_ranks_meet_and_get_their_variables(job, launched, twin):
    words = "a  b 'c' $d \"e\" `f` \\ \n g"
    request = job(TWO, HERE, strategy="meets", environ={"TINY_WORDS": words})
    result = launched(Ssh(), request)
    assert (result.outcome, result.reason) == ("ok", "")
    for rank in (0, 1):
        hello, joined = (of_type(kind, result.messages[rank])[0] for kind in (Hello, Joined))
        assert (hello.rank, hello.world, joined.world) == (rank, 2, 2)
        assert joined.versions["TINY_WORDS"] == words
        assert joined.versions["OMP_NUM_THREADS"] == "1"
        assert joined.versions["MASTER_PORT"] == str(request.port)


@DEATHS
def test_a_far_rank_that_dies_is_told(job, launched, twin, knobs, reason):
    result = launched(Ssh(), job(TWO, HERE, strategy="meets", knobs=knobs))
    assert result.outcome == "crash"
    assert result.reason.startswith(reason)


def test_a_frozen_far_rank_is_a_timeout_and_nothing_is_left(job, launched, twin):
    request = job(TWO, HERE, strategy="meets", knobs={"dies": 1, "signal": "SIGSTOP"})
    result = launched(Ssh(), request, silence=5)
    assert result.outcome == "timeout"
    assert "sent no message for 5 s (silence limit) in native" in result.reason
    assert running_with(request.folder) == []


def test_a_folder_that_is_not_shared_is_told(job, launched, twin, monkeypatch):
    monkeypatch.setattr(watchdog, "GRACE", 0.5)
    request = job(TWO, HERE, strategy="meets")
    processes = Ssh().processes(request)
    (request.folder / GUARD).unlink()  # as where another folder lies at the same path
    result = launched(Ssh(), request, processes)
    assert result.outcome == "crash"
    told = f"{os.uname().nodename} does not see {request.folder} of this run: name a folder that all hosts share"
    assert result.reason.startswith("rank 1 ended with exit code 66 before its first message; its last lines: " + told)


def test_what_a_login_says_in_the_end_is_told(job, launched, program):
    program(TWIN.replace("exec env", "env", 1) + "echo 'Connection to b closed.' >&2; exit 255\n")
    result = launched(Ssh(), job(TWO, HERE, strategy="alone", knobs={"dies": 1, "signal": "SIGKILL"}))
    assert result.reason.startswith("rank 1 ended with exit code 255 in native")
    assert result.reason.endswith("Connection to b closed.")


def running_with(folder):
    """Lines of `ps` that name the attempt's folder, but for the zombies."""
    lines = subprocess.run(["ps", "-eo", "stat=,args="], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if str(folder) in line and not line.startswith("Z")]


THEMSELVES = {"pytorch": "ddp", "tensorflow": "multiworker_mirrored", "mxnet": "dist_sync"}


def test_who_meets_by_itself_is_started_by_it_over_hosts_unless_a_plan_says_otherwise(tmp_path):
    blocks = [{"adapter": adapter, "strategy": strategy} for adapter, strategy in THEMSELVES.items()]
    (tmp_path / "plan.toml").write_text(plans.brief(*blocks, nodes=[1, 2], ranks=2))
    cases = [one.case for one in resolve(load(tmp_path / "plan.toml"), adapters(), launchers(), workloads())]
    assert {(case.placement.nodes, case.placement.launcher) for case in cases} == {(1, "local"), (2, "ssh")}


@pytest.mark.parametrize(
    "options", [[], ["-x"], ["-x", "-o", "ConnectionAttempts=10"], ["-l", "me", "-q"]], ids=" ".join
)
def test_options_that_an_engine_or_an_operator_adds_are_not_taken_for_the_host(tmp_path, program, options):
    program('#!/bin/sh\necho "to $1"\nshift\nexec /bin/sh -c "$*"\n')
    login = write_daemon_login(Request(Placement(), (), Path(sys.executable), {}, tmp_path))
    tokens = [login, *options, "b", "echo", '"it\'s"', "$((1 + 1));", "exit 3"]
    done = subprocess.run(tokens, capture_output=True, text=True, timeout=300)
    assert done.stdout == "to b\nit's 2\n", done.stderr
    (told,) = [json.loads(line) for line in (tmp_path / LOGINS).read_text().splitlines()]
    assert (told["host"], told["code"]) == ("b", 3)
