"""The job: every task over the file and back, and what is refused."""

import json

import pytest

from stagebench.suite.worker import job as of
from stagebench.suite.worker.case_parts import Schedule, Training
from stagebench.suite.worker.contract import Adam
from stagebench.suite.worker.job import DataSet, decode, encode
from stagebench.suite.worker.typed_json import to_json
from tests.support import jobs
from tests.support.errors import raising

GRAPH, DATA = jobs.graph(), DataSet("folder", "/photographs")
EVERY = [
    jobs.measure(),
    jobs.measure("native", data=DATA),
    of.Train(GRAPH, Training(3, 0.25), Schedule(2.0, "cosine"), jobs.READ_ONCE, DATA),
    of.Prove(GRAPH, "/oracle", 8),
    of.Prove(GRAPH, "/oracle", 8, True),
    of.MakeOracle(GRAPH, "/oracle", 16),
    jobs.packing("tfrecord", "/packed", 2),
    of.Read(GRAPH, DATA, jobs.READ_ONCE, 9),
    of.Behave(8, 2, ["threads"], ["backward"]),
    of.Look(),
    of.Communicate("adapters.x.comm:X", "all-reduce", [1, 4], [4], 0.5, 0.0),
    of.Communicate("adapters.x.comm:X", "all-reduce", [7, 9], [], 0.5, 0.0, True),
]
JOB = of.Job("/out", jobs.ranks(knobs={"bucket": 25}), jobs.measure())


@pytest.mark.parametrize("task", EVERY, ids=lambda task: type(task).__name__)
def test_a_job_reads_back(task, tmp_path):
    job = JOB._replace(task=task)
    (tmp_path / "job.json").write_text(encode(job))
    found = of.read_job(str(tmp_path / "job.json"))
    assert to_json(found) == to_json(job)  # graphs are compared by their description
    assert type(found.task) is type(task)
    assert found.group == job.group


def test_there_is_one_of_every_task_and_of_every_rule():
    assert {type(task) for task in EVERY} == set(of.TASKS.values())
    adam = Adam(0.001, 0.9, 0.999, 1e-8, 0.0)
    assert decode(encode(JOB._replace(group=jobs.ranks(optimiser=adam))), "x").group.setup.optimiser == adam


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda job: job.pop("group"), "wants output, group and one of measure, train"),
        (lambda job: job.update(look={}), "wants output, group and one of measure, train"),
        (lambda job: job.update(more=1), "wants output, group and one of measure, train"),
        (lambda job: job["group"]["setup"].update(threads="2"), r"j: group\.setup\.threads: a whole number is"),
        (lambda job: job["measure"].pop("passes"), "j: measure: the field 'passes' is missing"),
        (lambda job: job["measure"]["graph"].pop("heads"), r"j: measure\.graph: no Graph: the graph has no key"),
    ],
)
def test_what_is_no_job_is_refused_by_file_and_field(change, error):
    content = json.loads(encode(JOB))
    change(content)
    with pytest.raises(ValueError, match=error):
        decode(json.dumps(content), "j")


def test_a_damaged_file_and_another_format_are_named():
    for content in ('{"format": 1, "task": "measure"}', "{}", "[]"):
        with pytest.raises(ValueError, match=r"job\.json .*(1|None); .* %d$" % of.FORMAT):
            decode(content, "job.json")
    with pytest.raises(ValueError, match=r"job\.json .*no JSON"):
        decode(encode(JOB)[:100], "job.json")
    with raising(ValueError, "job: group.setup.threads", "2.5"):
        encode(JOB._replace(group=jobs.ranks(threads=2.5)))
