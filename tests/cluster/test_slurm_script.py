"""The batch script: its text is a file that a person can read, and bash can."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from stagebench.cluster.slurm import follow, script
from stagebench.cluster.slurm.launcher import Slurm
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.engine_messages import CODEC, FILE, OomKills
from stagebench.suite.contracts.launcher import Request
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.processes.hosts import refused
from tests.support.started import wait_until

GOLDEN = Path(__file__).parent / "golden"
PYTHON = Path("/env/bin/python")
WORKER = (str(PYTHON), "-B", "-u", "/run/bundles/tiny", "/run/case/job.json")
FOLDER = Path("/run/case")

SCRIPTS = {
    "two-nodes": Request(
        Placement(nodes=2, ranks_per_node=2, threads=3, launcher="slurm"),
        WORKER,
        PYTHON,
        {"OMP_NUM_THREADS": "3", "WORDS": "a 'b' $c"},
        FOLDER,
        port=29500,
        seconds=1800.0,
    ),
    "sidecars": Request(
        Placement(nodes=2, device="cuda", devices=2, hosts=("a", "b"), launcher="slurm"),
        WORKER,
        PYTHON,
        {"DMLC_NUM_SERVER": "1"},
        FOLDER,
        port=29500,
        sidecars=((str(PYTHON), "server.py", "scheduler"), (str(PYTHON), "server.py", "server")),
        seconds=60.0,
    ),
}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    monkeypatch.delenv(script.SETTING, raising=False)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_is_the_golden_file_which_bash_can_read(name, monkeypatch):
    if name == "sidecars":
        monkeypatch.setenv(script.SETTING, "--partition=gpu --comment='two words'")
    golden = GOLDEN / f"slurm-{name}.sbatch"
    assert script.text(SCRIPTS[name], "pmix") == golden.read_text()
    checked = subprocess.run(["bash", "-n", golden], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv (util-linux) here")
def test_a_rank_ends_with_its_shell(tmp_path):
    """Slurm kills the shell of a step that is starting, and may know nothing of what the shell started."""
    shown = tmp_path / "pid"
    rank = ["sh", "-c", f"echo $$ >{shown}.tmp; mv {shown}.tmp {shown}; exec sleep 1000"]
    shell = subprocess.Popen(["bash", "-c", f'{script.NUMBERS}exec bash -c "$numbers" rank "$@"', "bash", *rank])
    try:
        wait_until(shown.exists)
        process = psutil.Process(int(shown.read_text()))
    finally:
        shell.kill()
        shell.wait()
    process.wait(timeout=120)  # or it raises


@pytest.mark.parametrize(("killed", "told"), [(1, [OomKills(socket.gethostname(), 1)]), (0, [])])
def test_a_rank_reports_its_node_s_kills_and_ends_as_it_was_ended(killed, told, tmp_path):
    """Where Slurm has no memory cgroups: on the count of a node's kernel, as a file that this rank raises."""
    count = tmp_path / "vmstat"
    count.write_text("pgfault 9\noom_kill 7\n")
    rank = ["sh", "-c", f"echo oom_kill {7 + killed} >{count}; kill -9 $$"]
    lines = script.NUMBERS.replace("/proc/vmstat", str(count)) + 'bash -c "$numbers" rank "$@"\n'
    done = subprocess.run(["bash", "-c", f"{lines}exit $?", "script", *rank], cwd=tmp_path, check=False)
    assert done.returncode == 128 + signal.SIGKILL
    reported = tmp_path / FILE
    assert list(map(CODEC.decode, reported.read_text().splitlines() if reported.exists() else [])) == told
    ended = subprocess.run(["bash", "-c", f"{lines}exit $?", "script", "sh", "-c", "exit 3"], cwd=tmp_path, check=False)
    assert ended.returncode == 3


def test_a_rank_that_was_killed_is_named_so_though_its_step_is_ended_meanwhile():
    """Open MPI ends the others when one is killed, and srun the step: SIGTERM may reach the shell before it knows."""
    rank = ["bash", "-c", "kill -TERM $PPID; kill -KILL $$"]
    shell = ["bash", "-c", f'{script.NUMBERS}exec bash -c "$numbers" rank "$@"', "bash"]
    assert subprocess.run([*shell, *rank], check=False).returncode == -signal.SIGKILL
    ended = ["bash", "-c", "kill -TERM $PPID; kill -TERM $$"]
    assert subprocess.run([*shell, *ended], check=False).returncode == -signal.SIGTERM


SCONTROL = """#!/bin/sh
case "$2" in
  hostnames) printf 'debian\\nfar\\n' ;;
  node) case "$4" in
    far) echo "NodeName=far NodeAddr=127.0.0.2 NodeHostName=far" ;;
    *) echo "NodeName=debian NodeAddr=debian NodeHostName=debian" ;;
  esac
esac
"""


@pytest.mark.parametrize(("nodes", "address"), [(1, "debian"), (2, "127.0.0.1")])
def test_ranks_on_several_nodes_meet_at_the_first_one_s_address_as_the_others_see_it(nodes, address, tmp_path):
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    request = Request(Placement(nodes=nodes, launcher="slurm"), WORKER, Path(sys.executable), {}, FOLDER, port=29500)
    variables = {"PATH": f"{tmp_path}:{os.defpath}", "SLURMD_NODENAME": "debian", "SLURM_JOB_NODELIST": "debian,far"}
    told = subprocess.check_output(
        ["bash", "-c", script.variables(request) + 'echo "$MASTER_ADDR"'], env=variables, text=True
    )
    assert told == f"{address}\n"


def options(monkeypatch, given):
    """The lines for sbatch of a script with GPUs, where a person gives some."""
    monkeypatch.setenv(script.SETTING, given)
    text = script.text(SCRIPTS["sidecars"], "none")
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_a_person_s_options_come_last_and_so_have_the_last_word(monkeypatch):
    assert options(monkeypatch, "--time=5 --oversubscribe")[-2:] == ["--time=5", "--oversubscribe"]


@pytest.mark.parametrize(
    ("given", "gone", "kept"),
    [
        ("--mem-per-cpu=1G", "--mem=", "--exclusive"),
        ("--oversubscribe", "--exclusive", "--mem=0"),
        ("--exclusive= --mem=", "--exclusive", "--nodes=2"),  # what a site forbids is withdrawn
        ("--no-requeue=", "--no-requeue", "--mem=0"),
        ("--gres=gpu:a100:2", "--gpus-per-node", "--gres=gpu:a100:2"),
        ("--gpus-per-node=", "--gpus-per-node", "--exclusive"),
    ],
)
def test_our_options_give_way_to_a_person_s(given, gone, kept, monkeypatch):
    lines = options(monkeypatch, given)
    assert not any(line.startswith(gone) for line in lines)
    assert any(line.startswith(kept) for line in lines)
    assert not any(line.endswith("=") for line in lines)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("--comment='open", "No closing quotation; write options of sbatch as a shell would read them"),
        ("--partition gpu", "STAGEBENCH_SBATCH has 'gpu', which is no option of sbatch; write --name=value as one"),
    ],
)
def test_options_that_are_none_are_refused(given, reason, monkeypatch, tmp_path):
    monkeypatch.setenv(script.SETTING, given)
    monkeypatch.setenv("SLURM_MPI_TYPE", "none")
    request = Request(Placement(), WORKER, PYTHON, {}, tmp_path)
    with pytest.raises(RequestError, match=reason):
        Slurm().processes(request)


def test_the_library_that_an_adapter_names_needs_no_mpi4py_and_a_job_s_name_is_the_folder_s(tmp_path):
    [process] = Slurm().processes(Request(Placement(), WORKER, PYTHON, {}, tmp_path, mpi="Open MPI"))
    assert "--mpi=pmix" in (tmp_path / script.NAME).read_text()
    assert process.queues
    assert script.job_name(FOLDER) == script.job_name(FOLDER) != script.job_name(FOLDER.parent)


@pytest.mark.parametrize(("job", "seconds"), [("", "3600.0"), ("77", "60.0")])
def test_within_a_job_another_waits_a_minute_because_its_nodes_may_be_that_job_s(job, seconds, monkeypatch, tmp_path):
    monkeypatch.setenv("SLURM_JOB_ID", job)
    [process] = Slurm().processes(Request(Placement(), WORKER, PYTHON, {}, tmp_path, mpi="Open MPI"))
    assert process.tokens[-1] == seconds
    assert process.environ == {follow.AROUND: job}


HOSTILE = (
    *("a\ntouch pwned", "a;b", "$(id)", "-w", "a b", "a,b", "a'b", "[x]", "u@h", "a:9", "%0", ""),
    *("x" * 300, "x.a" * 100, "fe80::1%$(id)"),
)


def test_a_hostile_host_is_refused_before_anything_is_written_for_it_and_one_of_rfc_1123_is_taken():
    for host in HOSTILE:
        told = refused(host)
        assert told, host
        assert "\n" not in told
        assert len(told) < 300
    for host in ("a", "node-1", "node_1", "gpu01.cluster.example.org", "10.0.0.1", "fe80::1", "localhost"):
        assert refused(host) is None


@pytest.mark.parametrize("host", [host for host in HOSTILE if "\n" not in host])
def test_no_value_becomes_a_command_of_the_script(host):
    """Also of a placement that no plan made: every option stays on its line."""
    request = replace(SCRIPTS["sidecars"], placement=Placement(hosts=(host,), launcher="slurm"))
    text = script.text(request, "pmix; id")
    assert "--mpi='pmix; id' " in text
    assert [line[:8] for line in text.splitlines() if "nodelist" in line] == ["#SBATCH "]


def test_an_option_of_two_lines_is_refused(monkeypatch):
    hosts = replace(SCRIPTS["sidecars"], placement=Placement(hosts=("a\ntouch pwned",), launcher="slurm"))
    with pytest.raises(Unavailable, match="cannot stand"):
        script.text(hosts, "pmix")
    monkeypatch.setenv(script.SETTING, "--comment='x\ntouch pwned'")
    with pytest.raises(Unavailable, match="cannot stand"):
        script.text(SCRIPTS["sidecars"], "pmix")


def test_variables_and_commands_are_words_to_bash(tmp_path):
    """The script's own lines, run by bash: what is exported comes out as it went in."""
    value = "a 'b' $(touch pwned) `id` \"c\" \\ ; \n#SBATCH --x"
    lines = script.variables(replace(SCRIPTS["two-nodes"], environ={"WORDS": value}, port=0))
    done = subprocess.run(
        ["bash", "-c", lines + 'printf %s "$WORDS"'], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout == value
    assert not list(tmp_path.iterdir())
