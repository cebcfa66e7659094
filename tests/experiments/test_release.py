"""The five experiments that ship, end to end at their smallest useful scale; before a release."""

import pytest

FRAMEWORKS = {
    "paper": {"pytorch", "tensorflow", "mxnet", "cntk", "caffempi"},
    "data-parallel": {"pytorch", "tensorflow", "mxnet"},
    "batch-size": {"pytorch", "mxnet"},
    "horovod-style": {"pytorch", "mxnet", "caffempi"},
    "autotune": {"pytorch", "mxnet"},
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_experiment_answers_its_question(name, experiment):
    done = experiment(name, "small")
    cases = done.folder.cases
    assert {entry["case"]["adapter"] for entry in cases} == FRAMEWORKS[name]
    assert set(done.outcomes) <= {"ok", "unsupported", "unavailable"}
    proofs, measured = done.folder.proofs(), set()
    for entry in cases:
        if entry["outcome"]:
            assert entry["reason"], entry["id"]
            continue
        measured.add(entry["case"]["adapter"])
        for repeat in range(entry["case"]["sampling"]["processes"]):
            record = done.folder.record(entry["id"], repeat)
            assert record, f"{entry['id']} was not measured"
            assert proofs[record["proof"]]["passed"], proofs[record["proof"]]["reason"]
    assert len(measured) > 1, "a comparison takes two frameworks"
    assert done.folder.scale == "small"
    assert len(done.page) > 10_000
