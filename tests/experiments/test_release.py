"""The experiments that ship, end to end at their smallest useful scale, and what all learn alike; before a release."""

import pytest

from stagebench.suite.analysis.summary import summarise
from stagebench.suite.plan import ready_made
from tests.reports.answers import unanswered

EVERYWHERE = {"pytorch", "tensorflow", "mxnet", "cntk", "jax", "caffempi"}
# By plan: those of its scale `small`.
FRAMEWORKS = {
    "autotune": {"pytorch", "mxnet"},
    "batch-size": {"pytorch", "mxnet"},
    "data-parallel": {"pytorch", "tensorflow"},
    "horovod-style": {"pytorch", "mxnet", "horovod-mxnet", "caffempi"},
    "inference": EVERYWHERE | {"onnxruntime", "openvino"},
    "learning": EVERYWHERE,
    "model-parallel": {"pytorch", "tensorflow"},
    "networks": EVERYWHERE,
    "paper": EVERYWHERE - {"jax"},
    "prediction": {"pytorch", "caffempi"},
    "quick": EVERYWHERE,
    "readers": {"pytorch", "mxnet"},
    "serving": {"pytorch", "mxnet", "onnxruntime"},
    "stragglers": {"pytorch", "caffempi"},
    "transformers": EVERYWHERE | {"horovod-pytorch", "horovod-tensorflow", "horovod-mxnet"},
    "time-to-train": {"pytorch", "mxnet", "caffempi"},
}


@pytest.mark.parametrize("name", ready_made())
def test_an_experiment_answers_its_question(name, experiment):
    done = experiment(name, "small")
    cases = done.folder.cases
    assert {entry.case.adapter for entry in cases} == FRAMEWORKS[name]
    assert set(done.outcomes) <= {"ok", "unsupported", "unavailable"}
    proofs, measured = done.folder.proofs(), set()
    for entry in cases:
        if entry.outcome:
            assert entry.reason, entry.id
            continue
        for repeat in range(entry.case.sampling.processes):
            record = done.folder.record(entry.id, repeat)
            assert record, f"{entry.id} was not measured"
            if record.outcome == "unavailable":  # found out where it ran: an mpiexec of another library, say
                assert record.reason
                continue
            measured.add(entry.case.adapter)
            assert proofs[record.proof].passed, proofs[record.proof].reason
    assert len(measured) > 1, "a comparison takes two frameworks"
    assert done.folder.scale == "small"
    assert all(adapter in done.pages["evidence.html"] for adapter in measured)
    assert unanswered(name, done.pages, whole=True) == []


@pytest.mark.parametrize(("scale", "cuts"), [("branches", {"branch_parallel"}), ("transformer", set())])
def test_a_network_is_cut_in_every_way_that_it_has(scale, cuts, experiment):
    done = experiment("model-parallel", scale)
    strategies = {"single", "ddp", "tensor_parallel", "pipeline", *cuts}
    assert {row.case.strategy for row in summarise(done.folder) if row.comparable} == strategies
    (page,) = [text for text in done.pages.values() if 'id="parts"' in text]
    assert "on 2 devices: pytorch/" in page


READING = """
name = "reading"

[defaults]
workload = "alexnet"
batch = 1024
data = "real"
tuning = "tuned"
readers = 2
passes = ["io_only"]

[sampling]
quick = true
warmup_steps = 1
steps = 3
seconds = 0
processes = 1

[[cases]]
adapter = ["pytorch", "tensorflow", "mxnet", "cntk", "jax", "caffempi"]
strategy = "single"
"""


def test_the_study_s_large_batch_is_read(experiment, tmp_path):
    """On CPUs its plan trains with less; reading alone asks the same of them as of GPUs."""
    (tmp_path / "reading.toml").write_text(READING)
    rows = summarise(experiment(str(tmp_path / "reading.toml")).folder)
    assert {row.case.adapter for row in rows if row.outcome == "ok" and row.case.batch == 1024} == EVERYWHERE


SAME_STEPS, SAME_LOSS = 50, 1e-3


def test_all_frameworks_learn_the_same_and_reach_the_target(experiment):
    rows = [row for row in summarise(experiment("learning").folder) if row.lessons]
    curves = {(row.case.workload, row.case.adapter): row.lessons[0] for row in rows}
    assert set(curves) == {(workload, name) for workload in ("mnist_small", "gpt_char") for name in EVERYWHERE}
    for (workload, name), lesson in curves.items():
        best = max(epoch.accuracy for epoch in lesson.epochs)
        assert best >= 0.98 or workload != "mnist_small", f"{name} reaches {best}"
        right = curves[workload, "pytorch"].losses
        off = [abs(a - b) for a, b in zip(lesson.losses[:SAME_STEPS], right, strict=False)]
        assert len(off) == SAME_STEPS
        assert max(off) <= SAME_LOSS, f"{name} is {max(off)} away from pytorch with {workload}"
