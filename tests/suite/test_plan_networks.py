"""Networks of one's own: a file in place of a workload's name."""

import json
import re

import pytest

from stagebench.suite import plugins
from stagebench.suite.errors import RequestError
from stagebench.suite.plan import load, resolve
from stagebench.suite.plan.networks import read, register, registered
from stagebench.workloads.networks import by_name
from tests.support.errors import raising

PYTHON = """\
from stagebench.workloads.build import Builder


def network():
    b = Builder("mine", (1, 28, 28), 10)
    b.head(b.dense("fc", b.flatten("flat", "input"), 10))
    return b
"""
PLAN = """\
name = "x"
[[cases]]
adapter = "alpha"
strategy = "single"
workload = ["alexnet", "{}"]
"""


@pytest.fixture
def file(tmp_path):
    """A file of that name and text."""

    def make(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return make


def graph_text(**changes: object) -> str:
    return json.dumps({**by_name()["mnist_small"].graph().to_dict(), "name": "mine", **changes})


def test_a_python_file_s_network_and_a_json_file_s_graph_are_workloads(file):
    workload = read(file("mine.py", PYTHON + "\nproof_batch = 16\n"))
    assert (workload.name, workload.graph().classes, workload.proof_batch) == ("mine", 10, 16)
    assert (workload.dataset, workload.proof_lr) == ("digits", 0.001)
    assert workload.source.endswith("/mine.py")
    assert read(file("mine.py", PYTHON + "\ngraph, network = network().graph, None\n")).name == "mine"
    workload = read(file("mine.json", graph_text()))
    assert workload.name == "mine"
    assert workload.graph().parameter_count == by_name()["mnist_small"].graph().parameter_count
    photographs = json.dumps({**by_name()["alexnet"].graph().to_dict(), "name": "pictures"})
    assert read(file("pictures.json", photographs)).dataset == "imagenet-like"


def test_a_context_of_a_file_s_network_is_the_file_s(file):
    """The run folder keeps it as it is."""
    text = json.dumps(dict(by_name()["gpt_char"].graph().to_dict(), name="mine"))
    file("mine.json", text)
    plan = registered(load(file("plan.toml", PLAN.format("mine.json").replace("alexnet", "mine@8"))))
    assert [str(problem) for problem in plan.problems.found if "mine@8" in str(problem)]


LAYERS = by_name()["mnist_small"].graph().to_dict()["layers"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.py", "def network(:\n", "a.py:1: "),
        ("a.py", PYTHON.replace('"input"', '"inputt"'), "a.py:6: ValueError: layer 'flat' reads 'inputt'"),
        ("a.py", PYTHON.replace("    return b\n", ""), "a.py defines no function network() and no variable graph"),
        ("a.py", "graph = 5\n", "a.py defines a int"),
        ("a.py", "\n" + PYTHON.replace("stagebench.", ""), "a.py:2: there is no workloads.build any more; write stage"),
        ("a.py", "\nraise SystemExit(0)\n", "a.py:2: SystemExit: 0"),
        ("a.py", PYTHON.replace('"mine"', '"my net"'), "a.py: the network's name is 'my net'"),
        ("a.py", PYTHON.replace("    b.head(b.dense", "    (b.dense"), "a.py: the network 'mine' has no head"),
        (
            "a.py",
            PYTHON.replace("(1, 28, 28)", "(28, 28)"),
            "the network 'mine' takes (28, 28); begin with images (cha",
        ),
        ("a.json", "{,}", "a.json:1: not valid JSON"),
        ("a.json", "{}", "a.json: the graph has no key 'name'"),
        ("a.json", graph_text(layers=[LAYERS[0], {**LAYERS[1], "kind": "rleu"}]), "a.json: layers[1]: "),
        ("a.json", graph_text(layers=[{"name": "c"}]), "a.json: layers[0] has no key 'kind'"),
        ("a.json", graph_text(heads=[{"layer": "nobody", "weight": 1}]), "a.json: heads[0]: a head reads 'nobody'"),
    ],
)
def test_what_is_wrong_names_the_file_and_the_place(file, name, text, problem):
    with pytest.raises(RequestError) as caught:
        read(file(name, text))
    assert problem in str(caught.value)
    remedy = r"; (it should be|correct it|write stagebench|add one|take letters|return the Builder|begin with images)"
    assert re.search(remedy, str(caught.value))


def test_a_file_that_is_not_there_or_whose_name_is_taken_is_refused(toys, file, tmp_path):
    with raising(RequestError, "nets/a.py"):
        read(tmp_path / "nets" / "a.py")
    (tmp_path / "folder.py").mkdir()
    with raising(RequestError, "folder.py"):
        read(tmp_path / "folder.py")
    register(file("one.py", PYTHON))
    register(file("one.py", PYTHON))  # the same again
    with raising(RequestError, "two.json", "mine"):
        register(file("two.json", graph_text()))
    with raising(RequestError, "alexnet"):
        register(file("three.py", PYTHON.replace('"mine"', '"alexnet"')))


def test_a_plan_and_its_scale_name_it_by_its_path_from_the_plan_s_folder(toys, file):
    file("mine.py", PYTHON)
    plan = registered(load(file("plan.toml", PLAN.format("./mine.py"))))
    assert plan.networks == ("mine",)
    found = resolve(plan, toys.adapters, toys.launchers, plugins.workloads())
    assert [(each.case.workload, each.outcome) for each in found] == [("alexnet", None), ("mine", None)]
    assert found[1].case.graph_digest == plugins.workloads()["mine"].graph().digest
    file("mine.py", PYTHON)
    text = PLAN.format("mine.py") + '[scale.small.keep]\nworkload = "mine.py"\n'
    plan = registered(load(file("plan.toml", text), "small"))
    found = resolve(plan, toys.adapters, toys.launchers, plugins.workloads())
    assert [each.case.workload for each in found] == ["mine"]
    plan = registered(load(file("plan.toml", text.replace('workload = "mine.py"', 'workload = "alexnet"')), "small"))
    found = resolve(plan, toys.adapters, toys.launchers, plugins.workloads())
    assert [each.case.workload for each in found] == ["alexnet"]


def test_a_broken_file_is_a_problem_of_the_plan_at_its_line_the_only_one_where_it_is_alone(toys, file):
    file("mine.py", "graph = 5\n")
    plan = registered(load(file("plan.toml", PLAN.format("mine.py").replace("alexnet", "alexnt"))))
    with pytest.raises(RequestError) as caught:
        resolve(plan, toys.adapters, toys.launchers, plugins.workloads())
    told = str(caught.value)
    assert "plan.toml:5: unknown workload 'alexnt'" in told
    assert "plan.toml:5: " in told
    assert "mine.py defines a int" in told
    network = file("mine.py", "graph = 5\n")
    plan = registered(load(file("plan.toml", PLAN.format("mine.py").replace('"alexnet", ', ""))))
    with pytest.raises(RequestError) as caught:
        resolve(plan, toys.adapters, toys.launchers, plugins.workloads())
    assert str(caught.value) == (
        f"the plan has one problem; nothing was started\n{plan.file}:5: {network} defines a int; "
        "return the Builder of stagebench.workloads.build or its graph from a function network()"
    )
