"""`spark` and `ray` without a cluster: what they refuse, what they hand over, and a node's part with real programs."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from queue import Queue

import pytest

from stagebench.cluster import logins
from stagebench.cluster.gang import driver, launcher, node
from stagebench.cluster.gang.driver import NAME, Lifelines, explain
from stagebench.cluster.gang.ray_launcher import ADDRESS, Ray, nodes
from stagebench.cluster.gang.spark_launcher import MASTER, Spark
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import Request
from stagebench.suite.errors import RequestError
from stagebench.suite.processes.evidence import named_deaths
from tests.support.errors import raising
from tests.support.started import wait_until

HERE = Path(sys.executable)
CHECKOUT = Path(__file__).parents[2]
TWO = Placement(nodes=2, ranks_per_node=2, threads=3)


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch):
    for name in (MASTER, ADDRESS, "JAVA_HOME", "PYSPARK_PYTHON", "STAGEBENCH_SPARK_WAIT", "STAGEBENCH_RAY_WAIT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program on PATH, and the Python that has the engine's package."""

    def make(name, text="exit 0"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(path.parent), prepend=":")
        monkeypatch.setattr(launcher.GangLauncher, "_python", lambda self: path)
        nodes.cache_clear()
        return path

    yield make
    nodes.cache_clear()


def request_for(folder, placement=TWO, sidecars=()):
    return Request(placement, ("worker", "a b"), HERE, {"A": "x 'y' $z"}, folder, 29500, sidecars)


# --- refusals ------------------------------------------------------------------


@pytest.mark.parametrize("engine", [Spark(), Ray()], ids=["spark", "ray"])
def test_a_python_without_the_package_is_named_with_the_remedy(engine, monkeypatch, tmp_path):
    variable = f"STAGEBENCH_PYTHON_{engine.name.upper()}"
    monkeypatch.setenv(variable, "/no/such/python")
    assert engine.missing(TWO, HERE) == (
        f"no Python has {engine.package}: {variable} (/no/such/python) is not an executable file. Make an environment "
        f"with `stagebench env make engines`, or name a Python with {variable}"
    )
    with pytest.raises(RequestError, match="Python has"):
        engine.processes(request_for(tmp_path))


def test_spark_wants_java_and_a_master_that_answers(program, monkeypatch):
    program("python")
    with monkeypatch.context() as bare:
        bare.setenv("PATH", "/nowhere")
        assert "there is no java on PATH, which Spark runs in: apt-get install" in Spark().missing(TWO, HERE)
        bare.setenv("JAVA_HOME", "/no/jdk")
        assert "there is no java in JAVA_HOME (/no/jdk)" in Spark().missing(TWO, HERE)
    program("java")
    assert Spark().missing(TWO, HERE).startswith(f"{MASTER} names no Spark cluster; set it to the master's address")
    monkeypatch.setenv(MASTER, "spark://127.0.0.1:1,127.0.0.1:x")
    assert Spark().missing(TWO, HERE) == (
        "no Spark master answers at spark://127.0.0.1:1,127.0.0.1:x: start it (sbin/start-master.sh), or correct "
        f"{MASTER}"
    )
    monkeypatch.setenv(MASTER, "yarn")
    assert Spark().missing(TWO, HERE) is None
    monkeypatch.setenv("STAGEBENCH_SPARK_WAIT", "soon")
    assert Spark().missing(TWO, HERE).startswith("STAGEBENCH_SPARK_WAIT is 'soon'; it is a number of seconds above 0")


CLUSTER = json.dumps([["a", "10.0.0.1", 6.0, 0], ["b", "10.0.0.2", 8.0, 2]])
THERE = "it has a (10.0.0.1) with 6 CPUs and 0 GPUs; b (10.0.0.2) with 8 CPUs and 2 GPUs."


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        (TWO, None),
        (Placement(nodes=2, threads=6, hosts=("10.0.0.2", "a")), None),
        (Placement(nodes=3), f"nodes = 3, ranks = 1 want 3 of the Ray cluster's nodes, each with 1 CPUs: {THERE} Ask"),
        (Placement(nodes=2, threads=7), f"want 2 of the Ray cluster's nodes, each with 7 CPUs: {THERE} Ask for less"),
        (Placement(nodes=2, device="cuda"), f"each with 1 CPUs and 1 GPUs: {THERE} Ask for less, or start Ray on"),
        (Placement(hosts=("c",)), f"the Ray cluster has no node 'c' with 1 CPUs: {THERE} Correct `hosts`"),
        (Placement(hosts=("a",), threads=7), "the Ray cluster has no node 'a' with 7 CPUs"),
    ],
)
def test_ray_says_what_its_nodes_lack_or_why_it_does_not_answer(program, placement, reason):
    program("python", f"echo a warning\necho '{CLUSTER}'")
    said = Ray().missing(placement, HERE)
    assert said is None if reason is None else reason in said
    program("python", "echo 'ConnectionError: nobody at home' >&2; exit 1")
    assert Ray().missing(TWO, HERE).startswith("no Ray cluster answers (ConnectionError: nobody at home); start one (`")


# --- what is handed over ---------------------------------------------------------


def test_the_driver_is_given_ranks_by_node_and_its_own_python(program, tmp_path, monkeypatch):
    python = program("java")
    monkeypatch.setenv(MASTER, "yarn")
    sidecar = ("python", "server.py")
    (process,) = Spark().processes(request_for(tmp_path, sidecars=(sidecar,)))
    assert process.tokens == (str(python), str(Path(node.__file__).with_name("spark_driver.py")), str(tmp_path))
    assert process.environ == {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    assert (process.rank, process.queues, process.known_by) == (None, True, ("Spark",))
    gang = json.loads((tmp_path / NAME).read_text())
    assert [[who["RANK"] + who["LOCAL_RANK"] for who in each] for each in gang["ranks"]] == [["00", "11"], ["20", "31"]]
    far = ("--lifeline=20", "--patience=1.5", "--left=1.5", f"--report={tmp_path}/engine.jsonl")
    assert gang["guard"] == [str(HERE), "-I", "-S", "-B", str(tmp_path / node.GUARD), *far]
    assert {"HTTP_PROXY", "OMP_PLACES", "PYTHON", "PMIX_", "PYSPARK_", "RAY_", "SLURM_"} < set(gang["foreign"])
    handed = {key: gang[key] for key in ("command", "environ", "sidecars", "cores", "gpus", "hosts", "address")}
    assert handed == {
        "command": ["worker", "a b"],
        "environ": {"A": "x 'y' $z"},
        "sidecars": [["server.py", list(sidecar)]],
        "cores": 6,
        "gpus": 0,
        "hosts": [],
        "address": "yarn",
    }


def test_nodes_are_numbered_as_hosts_were_named_or_as_they_come():
    names = [("b", "10.0.0.2"), ("a", "10.0.0.1"), ("a", "10.0.0.1")]
    assert node.numbered([], names) == [0, 1, 2]
    assert node.numbered(["a", "10.0.0.2", "a"], names) == [1, 0, 2]
    with raising(RuntimeError, "b, a, a", "c"):
        node.numbered(["a", "c"], names)


# --- a node's part ---------------------------------------------------------------

WAITS = "import time; time.sleep(600)"
DIES = "import os, signal, sys; print('the last words', flush=True); "
MEETS = "import os; open(os.environ['RANK'], 'w').write(os.environ['MASTER_ADDR'] + os.environ.get('RAY_X', ''))"


@pytest.fixture
def gang(tmp_path, monkeypatch):
    """What two ranks of one node are given, that run a line of Python each."""
    monkeypatch.setattr(launcher.GangLauncher, "_python", lambda self: HERE)
    monkeypatch.setattr(Ray, "check_cluster", lambda self, placement, python: None)
    monkeypatch.setenv("RAY_X", "not for ranks")

    def make(*lines, sidecar=None):
        beside = ((str(HERE), "-c", sidecar),) if sidecar else ()
        Ray().processes(request_for(tmp_path, Placement(ranks_per_node=len(lines)), beside))
        made = json.loads((tmp_path / NAME).read_text())
        text = f"import os; exec({list(lines)!r}[int(os.environ['RANK'])])"
        return {**made, "command": [str(HERE), "-c", text]}

    return make


def held(gang, address=None):
    node.hold(gang, 0, [node.look(gang, "")], address or ("127.0.0.1", Lifelines(gang["proof"], print).port))


def test_a_node_holds_its_ranks_until_they_are_done(gang, tmp_path):
    held(gang(MEETS, MEETS, sidecar=WAITS))
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["127.0.0.1", "127.0.0.1"]
    assert json.loads((tmp_path / "engine.jsonl").read_text())["type"] == "begun"


@pytest.mark.parametrize(
    ("ranks", "sidecar", "said"),
    [
        ((WAITS, DIES + "os.kill(os.getpid(), signal.SIGKILL)"), None, r"rank 1 on \S+ ended by signal 9: the l"),
        ((DIES + "sys.exit(3)", WAITS), None, r"rank 0 on \S+ ended with exit code 3: the last words$"),
        # Found dead while rank 1, which it had missed, was still being tidied up.
        (
            (DIES + "sys.exit(1)", "import time; time.sleep(0.4);" + DIES + "os.kill(os.getpid(), signal.SIGKILL)"),
            None,
            r"rank 0 on \S+ ended with exit code 1: the last words; rank 1 on \S+ ended by signal 9: the last",
        ),
        ((WAITS,), "raise SystemExit(4)", r"SystemExit\(4\) ended with exit code 4$"),
        ((WAITS,), "raise MemoryError(4)", r"MemoryError\(4\) ended with exit code 1: MemoryError: 4$"),
    ],
)
def test_a_node_names_what_failed_and_ends_the_rest(gang, tmp_path, ranks, sidecar, said):
    with pytest.raises(RuntimeError, match=f"{node.SAID}.*{said}"):
        held(gang(*ranks, sidecar=sidecar))


def test_ranks_end_when_the_driver_falls_silent_as_when_its_link_is_cut(gang, monkeypatch):
    monkeypatch.setattr(logins, "SILENCE", 1.0)
    silenced, unreached = (
        r"rank 0 on .* no sign of the controller came for 1 s",
        r"cannot reach the driver at 127.0.0.1",
    )
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RuntimeError, match=silenced):
        held(gang(WAITS), silent.getsockname())
    with pytest.raises(RuntimeError, match=unreached + r" port 1 \(Connection refused\): let the"):
        held(gang(WAITS), ("127.0.0.1", 1))


# --- nodes that are lost -----------------------------------------------------------

OTHER, PROOF = ("b", "10.0.0.2", 1), "0ddba11"


@pytest.fixture
def lifelines(monkeypatch):
    """With what `on_loss` was told, and `connected`, which gives a node's end of a new one."""
    monkeypatch.setattr(driver, "BEAT", 0.1)
    told: Queue[str] = Queue()
    found = Lifelines(PROOF, told.put)

    def connected(place=OTHER):
        task = node.reached(("127.0.0.1", found.port), place, PROOF)
        open_ones.append(task)
        wait_until(lambda: len(found.nodes) == len(open_ones))
        return task

    open_ones: list[socket.socket] = []
    found.told, found.connected = told, connected
    yield found
    for task in open_ones:
        task.close()


def test_a_node_whose_task_ends_without_a_word_is_lost_and_named(lifelines):
    lifelines.connected().close()
    assert lifelines.told.get(timeout=120) == "the host b (10.0.0.2) was lost: its task ended without a word"


def test_a_node_that_gives_no_sign_of_life_is_lost_and_one_that_answers_is_not(lifelines, monkeypatch):
    monkeypatch.setattr(driver, "LOST", 0.4)
    answers, _ = lifelines.connected(("a", "10.0.0.1", 1)), lifelines.connected()

    def answer():
        while True:
            node.heed(answers)

    with pytest.raises(RuntimeError, match="the driver"):
        answer()
    assert lifelines.told.get(timeout=120) == "the host b (10.0.0.2) was lost: no sign of life for 0.4 s"


def test_whoever_takes_leave_is_not_lost_nor_whom_the_engine_ends_after_that(lifelines):
    first, other = lifelines.connected(("a", "10.0.0.1", 1)), lifelines.connected()
    first.send(node.FAREWELL)
    wait_until(lambda: any(each.left for each in lifelines.nodes))
    other.close()
    wait_until(lambda: any(each.ended for each in lifelines.nodes))
    assert lifelines.told.empty()


@pytest.mark.parametrize(
    "says", [b"GET /", b"GET / HTTP/1.0\r\n\r\n", b"b (10.0.0.2)\n", b"0ddba1 b (10.0.0.2)\n", b"\n"]
)
def test_a_stranger_at_the_driver_s_port_is_no_node(lifelines, says):
    with socket.create_connection(("127.0.0.1", lifelines.port)) as stranger:
        stranger.send(says)
        lifelines.connected()
    assert [each.name for each in lifelines.nodes] == ["b (10.0.0.2)"]
    assert lifelines.told.empty(), "that it has gone ends nothing"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Worker on 10.0.0.2:7077 lost", "b (10.0.0.2)"),
        ("lost 10.0.0.25 and 110.0.0.2", None),
        ("10.0.0.1 lost 10.0.0.2", None),
    ],
)
def test_an_engine_names_a_node_by_its_address(lifelines, words, name):
    lifelines.connected(("a", "10.0.0.1", 1))
    lifelines.connected()
    assert lifelines.named(words) == name


@pytest.mark.parametrize(
    ("does", "how"),
    [
        ("task.close(); time.sleep(60)", "its task ended without a word"),
        ("raise ValueError('10.0.0.2 is gone')", "ValueError: 10.0.0.2 is gone"),
    ],
    ids=["by its task", "in the engine's words"],
)
def test_a_driver_that_loses_a_node_reports_it_with_the_remedy_and_ends(tmp_path, does, how):
    (tmp_path / NAME).write_text(json.dumps({"proof": PROOF}))
    program = f"""
import sys, time
sys.argv[1] = {str(tmp_path)!r}
from stagebench.cluster.gang import driver, node
def work(gang, port):
    task = node.reached(("127.0.0.1", port), {OTHER!r}, gang["proof"])
    time.sleep(1)
    {does}
driver.main("Ray", "ray start", work)
"""
    done = subprocess.run([sys.executable, "-c", program, ""], cwd=CHECKOUT, timeout=300, check=False)
    assert done.returncode == 1
    said = json.loads((tmp_path / "engine.jsonl").read_text())
    remedy = "bring it back, with Ray on it (`ray start`), or name other hosts"
    assert (said["kind"], said["certain"]) == ("crash", True)
    assert said["message"] == f"the host b (10.0.0.2) was lost: {how}; {remedy}"


def test_a_folder_that_is_not_shared_and_an_interpreter_that_is_not_there_are_told(gang, tmp_path, monkeypatch):
    made = gang(WAITS)
    with raising(RuntimeError, "/no/such/python", "No such file or directory"):
        held({**made, "guard": ["/no/such/python", *made["guard"][1:]]})
    monkeypatch.setattr(node, "SEEN_WITHIN", 0)
    (tmp_path / node.GUARD).write_text("# another run's\n")
    with raising(RuntimeError, tmp_path):
        held(made)


# --- what a driver says -----------------------------------------------------------

JAVA = "org.apache.spark.SparkException: Job aborted\n  RuntimeError: {}\n\n\tat org.apache.spark.Task.run(Task:1)"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (RuntimeError(JAVA.format(f"{node.SAID}b does not see /x")), "crash", "b does not see /x"),
        (TimeoutError(f"{node.SAID}Ray had no 3 nodes"), "timeout", "Ray had no 3 nodes"),
        (ConnectionError("\nlost\nat a place"), "crash", "Ray's driver failed: ConnectionError: lost"),
    ],
)
def test_a_rank_that_died_is_found_in_the_engine_s_words_and_what_else_failed_explains_its_end(
    tmp_path, capsys, error, kind, message
):
    died = f"{node.SAID}rank 0 on a ended with exit code 1; rank 1 on a ended by signal 9: a: b"
    explain("Ray", tmp_path, RuntimeError(JAVA.format(died)))
    (tmp_path / "log").write_text(capsys.readouterr().out)
    assert named_deaths(tmp_path / "log", launcher.PATTERNS, {})[0] == (1, -9)
    assert not (tmp_path / "engine.jsonl").exists()
    explain("Ray", tmp_path, error)
    said = json.loads((tmp_path / "engine.jsonl").read_text())
    assert (said["type"], said["kind"], said["message"], said["certain"]) == ("engine failed", kind, message, True)
