"""`stagebench doctor`: what it says is ready, what is missing, and what to do about it."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stagebench.suite.cli import doctor
from stagebench.suite.contracts.adapter import Capabilities
from stagebench.suite.processes import query
from stagebench.suite.processes.interpreters import MADE, Interpreter
from stagebench.suite.worker import haproxy
from tests.support.memory import small_group


def test_doctor_tells_what_is_missing_and_the_remedy(stagebench, startable, monkeypatch):
    startable.adapters["alpha"].requires = ("no_such_framework",)
    told = stagebench("doctor")
    assert told.code == 1
    assert "stagebench env make alpha" in told.out
    assert "no_such_framework" in told.out
    assert "stagebench data make digits" in told.out
    found = json.loads(stagebench("doctor", "--json").out)
    alpha, beta = found["adapters"]
    assert (alpha["ready"], alpha["framework"], beta["ready"], beta["framework"]) == (False, True, True, False)
    assert not found["ready"], "a reference without a framework does not make the machine ready"
    assert [(row["name"], row["ready"]) for row in found["launchers"]] == [("local", True), ("many", False)]
    assert "pip install manyexec" in found["launchers"][1]["remedy"]
    assert found["host"]["cores"] >= 1
    monkeypatch.setenv("STAGEBENCH_PYTHON_ALPHA", "/no-such-python")
    told = stagebench("doctor").out
    words = "alpha: STAGEBENCH_PYTHON_ALPHA is /no-such-python, which is not an executable file; name another one"
    assert words in told
    assert "Data sets" in told or "imagenet-like" in told, "it goes on"


def test_doctor_lists_haproxy_and_its_remedy(stagebench, startable, tmp_path, monkeypatch):
    def row():
        return json.loads(stagebench("doctor", "--json").out)["model_servers"][-1]

    (tmp_path / "haproxy").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert (row()["name"], row()["ready"], row()["missing"]) == ("haproxy", True, "")
    (tmp_path / "haproxy").unlink()
    monkeypatch.setattr(haproxy, "SYSTEM", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not row()["ready"]
    assert f"- {row()['missing']}" in stagebench("doctor").out.replace("\n  ", " ")
    assert row()["remedy"] in row()["missing"]


def test_doctor_is_content_with_one_framework_and_uses_the_real_finders(stagebench, startable):
    found = json.loads(stagebench("doctor", "--json").out)
    alpha = found["adapters"][0]
    assert found["ready"]
    assert isinstance(alpha["python"], str)
    assert Path(alpha["interpreter"]).exists()
    assert stagebench("doctor").code == 0
    state = doctor.adapter_state(startable.adapters["beta"], [])
    assert state["versions"] == {"toy": "1"}
    assert state["python"] == ".".join(map(str, sys.version_info[:3]))
    assert Interpreter(Path(state["interpreter"]), "", "").path.exists()


def test_doctor_names_a_plugin_that_fails_and_goes_on(stagebench, startable):
    vars(startable.adapters["alpha"])["missing"] = lambda interpreter: 1 / 0
    vars(startable.launchers["local"])["missing"] = lambda placement, interpreter: ["mpiexec"]
    found = json.loads(stagebench("doctor", "--json").out)
    alpha, beta = found["adapters"]
    assert (alpha["ready"], beta["ready"]) == (False, True)
    assert alpha["missing"].startswith("the adapter 'alpha' fails at missing: ZeroDivisionError")
    assert found["launchers"][0]["remedy"].startswith("the launcher 'local' fails at missing: TypeError")


def test_doctor_names_what_dies_when_it_starts(startable, stagebench):
    startable.adapters["alpha"].trainer = "toy:NoSuchTrainer"
    state = doctor.adapter_state(startable.adapters["alpha"], [])
    assert not state["ready"]
    assert state["missing"].startswith("alpha does not start: on cpu: rank 0: AttributeError: ")
    startable.adapters["alpha"].package = "nowhere.below"
    told = stagebench("doctor")
    assert "alpha does not start: on cpu: the adapter 'alpha' names the package 'nowhere', which is not" in told.out


@pytest.mark.parametrize(
    ("body", "damaged"),
    [
        ("raise ImportError('libalpha.so.1: cannot open shared object file')", True),
        ("import os; os.kill(os.getpid(), 11)", True),
        ("raise NotImplementedError('a stub still')", False),  # the adapter's own fault: what is installed is good
    ],
)
@pytest.mark.parametrize(
    ("place", "remedy"),
    [("", "tox run -r -e alpha"), ("data/stagebench/envs", "stagebench env make --again alpha")],
    ids=["tox", "env"],
)
def test_doctor_makes_a_damaged_environment_anew(startable, tmp_path, monkeypatch, body, damaged, place, remedy):
    alpha = startable.adapters["alpha"]
    (tmp_path / "damaged.py").write_text(body + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STAGEBENCH_TOX_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    alpha.package, alpha.trainer = "damaged", "damaged:Trainer"
    assert doctor.adapter_state(alpha, [])["remedy"] is None, "the running interpreter is nobody's to make"
    python = tmp_path / place / alpha.environment / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (python.parents[1] / MADE).write_text("{}")
    assert doctor.adapter_state(alpha, [])["remedy"] == (remedy if damaged else None)


def test_doctor_shows_the_devices_that_are_here_and_says_that_a_framework_for_gpus_has_none(startable):
    class ForGPUs(type(startable.adapters["alpha"])):  # type: ignore[misc]
        package, trainer = "toy", "toy:ToyTrainer"
        requires = ("json",)

        @property
        def capabilities(self) -> Capabilities:
            return replace(super().capabilities, devices=("cuda",))

    alpha = startable.adapters["alpha"]  # does cpu and cuda
    assert doctor.adapter_state(alpha, [])["devices"] == ["cpu"]
    assert doctor.adapter_state(alpha, ["GPU 0: NVIDIA H200"])["devices"] == ["cpu", "cuda"]
    state = doctor.adapter_state(ForGPUs(), [])
    assert (state["missing"], state["remedy"]) == ("alpha works on cuda only, and no GPU is seen here", None)


def test_doctor_names_a_reader_that_lacks_a_library(stagebench, gamma):
    gamma.lacks = "whole"
    assert "- gamma, format whole: there is no libgamma.so.1; build it" in stagebench("doctor").out
    state = doctor.adapter_state(gamma, [])  # type: ignore[arg-type]
    assert (state["ready"], state["formats"]["cut"]) == (True, None)


@pytest.mark.parametrize(
    ("group", "at", "value", "warned"),
    [
        ("0::/", "", "1\n", True),  # a container's own group
        ("0::/pod/job", "pod", "1\n", True),
        ("0::/pod/job", "pod/job", "1\n", True),
        ("0::/pod/job", "other", "1\n", False),
        ("0::/", "", "0\n", False),
        ("4:memory:/", "", "1\n", False),
    ],
)
def test_doctor_says_where_the_kernel_would_end_all_for_want_of_memory(tmp_path, group, at, value, warned):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(group + "\n")
    (tmp_path / "sys/fs/cgroup" / at).mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup" / at / "memory.oom.group").write_text(value)
    warnings = doctor.host_warnings(doctor.host_facts(tmp_path, tmp_path))
    told = [warning for warning in warnings if "memory.oom.group" in warning]
    assert len(told) == warned
    assert all("give cases a `memory_limit`, or write 0 there" in warning for warning in told)


PINNING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET")
PROXIES = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "grpc_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "GRPC_PROXY",
)


@pytest.mark.parametrize(
    ("name", "why"), [*((name, "binding = 'cores'") for name in PINNING), *((name, "a proxy") for name in PROXIES)]
)
def test_what_would_pin_ranks_or_hide_them_is_not_handed_on_and_doctor_says_so(tmp_path, monkeypatch, name, why):
    monkeypatch.setenv(name, "x")
    (told,) = [
        each
        for each in doctor.host_warnings(doctor.host_facts(tmp_path))
        if each.startswith(f"ranks do not get {name}: ")
    ]
    assert why in told
    assert f"{name}=x" not in query.ask(["env"], 30.0).stdout


OWN_SHARED = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=$0 tmpfs /dev/shm && exec "$@"')


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*OWN_SHARED, "64m", "true"], capture_output=True).returncode != 0,
    reason="no /dev/shm of another size can be mounted here: it takes unshare --mount, so root",
)
@pytest.mark.parametrize(("size", "named"), [("64m", "/dev/shm has 67 MB, "), ("600m", "")])
def test_a_small_dev_shm_is_named_with_the_option_that_makes_it_larger(size, named):
    program = "from pathlib import Path; from stagebench.suite.cli.doctor import host_facts, host_warnings; "
    program += "print(*host_warnings(host_facts(Path())), sep='\\n')"
    printed = subprocess.check_output([*OWN_SHARED, size, sys.executable, "-c", program], text=True)
    told = [line for line in printed.splitlines() if "/dev/shm" in line]
    assert [line.startswith(named) and "--shm-size=2g" in line for line in told] == [True] * bool(named)


def test_a_control_group_s_memory_is_the_machine_s():
    program = "from pathlib import Path; from stagebench.suite.cli.doctor import host_facts; "
    program += "print(host_facts(Path())['memory_bytes'])"
    with small_group(200 << 20) as group:
        inside = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(group), sys.executable, "-c", program]
        assert int(subprocess.check_output(inside)) == 200 << 20
