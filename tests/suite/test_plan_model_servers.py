"""A model server's address and its own options in a plan: what holds, and what is refused."""

import pytest

from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import RequestError
from stagebench.suite.plan import load, resolve
from stagebench.suite.plan.model_servers import serving_of
from stagebench.suite.plan.text import Block, plan_text
from stagebench.suite.plugins import adapters, launchers, model_servers, workloads
from stagebench.suite.worker.case_parts import Serving
from tests.support.errors import raising

HEAD = """
name = "x"
[[cases]]
adapter = "onnxruntime"
strategy = "inference"
workload = "mnist_small"
passes = ["offline", "server"]
"""
THERE = 'model_server = "tensorflow-serving"\naddress = "http://there:8501/v1/models/net/"\n'


@pytest.fixture
def rules(plan_file):
    """Gives the settings of each case of a plan."""

    def resolved(text):
        found = resolve(load(plan_file(HEAD + text)), adapters(), launchers(), workloads())
        assert {each.outcome for each in found} == {None}
        return [each.case for each in found]

    return resolved


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('model_server = "tensorflow-serving"', ["tensorflow-serving"]),
        ('model_server = "mosec"\naddress = "http://there:1"', ["mosec", "'raw'"]),
        ('model_server = "raw"\naddress = "https://there:1/x"', ["https://there:1/x"]),
        ('model_server = "raw"\naddress = "http://there:70000/x"', ["http://there:70000/x"]),
        ('model_server = "raw"\naddress = "http://me:word@there/x"', ["me:word@there"]),
        ('model_server = "raw"\naddress = "there:80"', ["there:80"]),
        ('model_server = "raw"\naddress = "http://there:0/x"', ["http://there:0/x"]),
        ('model_server = "raw"\naddress = "http://there/x?token=1"', ["token=1"]),
        ('model_server = "raw"\naddress = "http://there/x#f"', ["x#f"]),
        ('model_server = "raw"\naddress = "http://[::::]:80/x"', ["[::::]"]),
        ('model_server = "open-inference-grpc"', ["open-inference-grpc", "grpc://"]),
        ('model_server = "open-inference-grpc"\naddress = "http://there:1/net"', ["http://there:1/net", "grpc://"]),
        ('model_server = "open-inference-grpc"\naddress = "grpc://there/net"', ["grpc://there/net"]),
        ('model_server = "open-inference-grpc"\naddress = "grpc://there:1"', ["grpc://there:1"]),
        ('model_server = "raw"\naddress = "grpc://there:1/net"', ["grpc://there:1/net", "http://"]),
        ('model_server = "triton-grpc"\naddress = "grpc://there:1/net"', ["triton-grpc", "'open-inference-grpc'"]),
        ('address = "http://there:1"', ["address"]),
        ("options = { capacity = 8 }", ["options"]),
        ('model_server = "mosec"\noptions = { capacty = 8 }', ["mosec", "capacty", "capacity"]),
        ('model_server = "kserve"\noptions = { capacity = 8 }', ["kserve", "capacity"]),
        ('model_server = "mosec"\noptions = { capacity = 0 }', ["mosec", "capacity", 0]),
        ('model_server = "litserve"\noptions = { fast_queue = "yes" }', ["litserve", "fast_queue", "yes"]),
        ('model_server = "mosec"\nmax_delay_ms = 2\noptions = { max_wait_time = 3 }', ["max_wait_time", 3, 2]),
        ('model_server = ["mosec", "litserve"]\noptions = { capacity = 8 }', ["litserve", "capacity"]),
    ],
)
def test_what_a_server_cannot_have_is_named(rules, text, values):
    with raising(RequestError, *values):
        rules(text)


def test_a_server_elsewhere_has_an_address_and_nothing_of_ours(rules):
    here, there = rules(
        f"{THERE}workers = 2\nmax_delay_ms = 5\n".replace('"tensor', '["inprocess", "tensor').replace(
            'serving"\n', 'serving"]\n'
        )
    )
    assert (here.serving.address, here.serving.max_delay_ms) == ("", 5.0)
    address = "http://there:8501/v1/models/net"
    assert there.serving == Serving(model_server="tensorflow-serving", address=address, workers=2)


def test_an_own_delay_is_the_common_one_and_options_are_swept_as_tables(rules):
    found = rules('batch = 4\nmodel_server = "triton"\noptions = [{}, { max_queue_delay_microseconds = 700 }]\n')
    assert [each.serving.max_delay_ms for each in found] == [0.0, 0.7]
    assert [each.serving.options for each in found] == [{}, {}], "a delay has one name in a case"
    same = 'model_server = "mosec"\nmax_delay_ms = 3\noptions = { max_wait_time = 3, capacity = 9 }\n'
    (both,) = rules(same)
    assert both.serving.max_delay_ms == 3.0
    assert both.serving.options == {"capacity": 9}


def test_a_case_is_written_as_a_plan_that_resolves_to_it(rules, tmp_path):
    found = [*rules(THERE), *rules('model_server = "triton"\noptions = { preferred_batch_size = [2, 4] }\n')]
    (tmp_path / "plan.toml").write_text(plan_text("x", "", "", [Block(each, "") for each in found]))
    again = resolve(load(tmp_path / "plan.toml"), adapters(), launchers(), workloads())
    assert [each.case.id for each in again] == [each.id for each in found]


def test_ids_of_cases_without_an_address_or_options_stay():
    rule = Serving(model_server="mosec")
    case = Case("pytorch", "inference", "mnist_small", passes=("offline", "server"), serving=rule)
    assert serving_of(case, model_servers()) == rule
    kept = case.on(serving=rule._replace(address="", options={}))
    assert kept.id == case.id != case.on(serving=rule._replace(options={"capacity": 9})).id


@pytest.mark.parametrize(
    ("server", "options", "batches"),
    [
        ("bentoml", "max_latency_ms = 500", [4]),
        ("bentoml", "max_concurrency = 9", [1, 4]),
        ("triton", "preferred_batch_size = [1, 4]", [4]),
        ("triton-grpc", "preferred_batch_size = [0]", []),
        ("triton", 'preferred_batch_size = ["4"]', []),
        ("kserve", "", [1]),
        ("mlflow", "", [1]),
    ],
)
def test_a_batch_or_an_option_that_a_server_cannot_have_is_refused(plan_file, server, options, batches):
    asked = f'batch = [1, 4]\nmodel_server = "{server}"\noptions = {{ {options} }}\n'
    found = resolve(load(plan_file(HEAD + asked)), adapters(), launchers(), workloads())
    assert [each.case.batch for each in found if each.outcome is None] == batches
    refused = [each for each in found if each.outcome]
    assert {each.outcome for each in refused} <= {"unsupported"}
    assert all(server in each.reason and options.partition(" ")[0] in each.reason for each in refused)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('nodes = 2\nmodel_server = "mosec"\n', None),
        ("nodes = 2\n", "several hosts"),
        ('nodes = 2\nmodel_server = "triton-grpc"\n', "HTTP/1.1"),
        ('ranks = 2\nmodel_server = "mosec"\n', "workers"),
        (f"nodes = 2\n{THERE}", "http://there:8501/v1/models/net"),
    ],
)
def test_several_hosts_have_a_server_of_ours_each(plan_file, text, words):
    (found,) = resolve(
        load(plan_file(HEAD + 'hosts = ["a", "b"]\n' * ("nodes" in text) + text)), adapters(), launchers(), workloads()
    )
    assert found.outcome == (words and "unsupported")
    assert words is None or words in found.reason
