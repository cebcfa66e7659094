"""A whole worker in a process of its own: what it says, and how it fails."""

import json
import os

import numpy as np
import pytest

TOY = "toy:ToyTrainer"


def by_type(messages, kind):
    return [message for message in messages if message["type"] == kind]


def phases(messages):
    return [message["name"] for message in by_type(messages, "phase")]


def failed(messages):
    assert messages[-1]["type"] == "failed"
    assert not by_type(messages, "done")
    return messages[-1]


def test_what_libraries_were_told_is_kept(make_job, work, monkeypatch):
    monkeypatch.setenv("UCX_NET_DEVICES", "eth7")
    monkeypatch.setenv("OMPI_MCA_orte_hnp_uri", "whatever a daemon needs")
    _, messages = work(make_job())
    said = by_type(messages, "hello")[0]["settings"]
    assert said["UCX_NET_DEVICES"] == "eth7"
    assert "OMPI_MCA_orte_hnp_uri" not in said


def test_a_rank_tells_its_host_s_cores_and_the_threads_that_it_was_given(make_job, work, monkeypatch):
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    _, messages = work(make_job())
    (hello,) = by_type(messages, "hello")
    assert hello["threads"] == {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "7"}
    assert hello["host_cores"] == os.cpu_count() >= len(hello["cores"])
    assert hello["boot"]


def test_what_a_trainer_told_its_libraries_is_kept_once_it_has_joined(make_job, work, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "before")
    told = {"GLOO_SOCKET_IFNAME": "eth7", "HOROVOD_CYCLE_TIME": "1.0", "HOROVOD_RANK": "0"}
    _, messages = work(make_job(trainer=TOY, knobs={"tells": told}))
    (hello,), (joined,) = by_type(messages, "hello"), by_type(messages, "joined")
    assert hello["settings"]["GLOO_SOCKET_IFNAME"] == "before"
    assert joined["settings"] == {**hello["settings"], "GLOO_SOCKET_IFNAME": "eth7", "HOROVOD_CYCLE_TIME": "1.0"}


def test_measuring_a_real_network(make_job, work):
    code, messages = work(make_job())
    assert code == 0
    assert messages[-1]["type"] == "done"
    hello, joined = by_type(messages, "hello")[0], by_type(messages, "joined")[0]
    assert (hello["rank"], hello["world"], hello["format"]) == (0, 1, 1)
    assert hello["numpy"] == np.__version__
    assert (joined["rank"], joined["world"], joined["transport"]) == (0, 1, "none")
    assert phases(messages) == ["join", "build", "native", "staged"]
    native, staged = (message["record"] for message in by_type(messages, "pass"))
    assert (native["pass"], staged["pass"]) == ("native", "staged")
    assert native["samples"] == 4 * len(native["step_s"]) == 12
    assert native["wall_s"] > 0
    assert staged["loss"] < native["loss"] < 4.0  # a repeated batch is learnt
    assert sum(staged["stage_s"]["communication"]) < 0.1 * sum(staged["stage_s"]["backward"])


def test_layer_times_are_of_the_staged_pass_alone_without_its_warm_up(make_job, work):
    every = ["native", "staged", "compute_only", "comm_only"]
    job = make_job(trainer="toy:LayeredToy", placement={"ranks_per_node": 2}, passes=every)
    code, messages = work(job, rank=0, world=2)
    assert code == 0
    assert [message["record"]["pass"] for message in by_type(messages, "pass")] == every
    ((row,),) = (message["layers"] for message in by_type(messages, "layers"))
    assert (row["forward_s"], row["backward_s"], row["communication_s"]) == (3, 3, 3)  # its three measured steps


def test_real_arrays_are_read(make_job, work, tmp_path):
    stream = np.random.RandomState(0)
    path = tmp_path / "digits.npz"
    images = stream.randint(0, 255, (20, 28, 28)).astype(np.uint8)
    np.savez(str(path), images=images, labels=stream.randint(0, 10, 20))
    job = make_job(data={"kind": "arrays", "path": str(path)}, readers=1, passes=["staged", "io_only"])
    code, messages = work(job)
    assert code == 0
    staged, alone = (message["record"] for message in by_type(messages, "pass"))
    assert sum(staged["stage_s"]["io"]) > 0
    assert len(alone["step_s"]) == 3
    assert {"data": "digits.npz (20 samples)"} in [message["notes"] for message in by_type(messages, "notes")]


@pytest.mark.parametrize("shards", [1, 2])
def test_oracle_and_proof(make_job, work, tmp_path, shards):
    oracle = tmp_path / "oracle"
    oracle.mkdir()
    code, _ = work(make_job("oracle", oracle=str(oracle), knobs={"shards": shards}))
    assert code == 0
    assert json.loads((oracle / "meta.json").read_text())["samples"] == 4
    code, messages = work(make_job("prove", oracle=str(oracle)))
    assert code == 0
    proof = by_type(messages, "proof")[0]["proof"]
    assert proof["parameter_count"] == 402442
    assert proof["macs"] == 627840
    # Without batch normalisation, shards change nothing but the order of sums.
    assert proof["losses"]["native"] == pytest.approx(proof["losses"]["oracle"], rel=1e-12)
    assert max(proof["errors"]["gradient"].values()) < 6e-8


def test_the_processes_output_goes_to_its_own_log(make_job, work):
    job = make_job(trainer=TOY)
    code, messages = work(job)
    assert (code, messages[-1]["type"]) == (0, "done")
    assert (job.parent / "rank-0.log").read_text() == "the toy says hello on its standard output\n"


def test_another_world_than_asked_for_is_refused(make_job, work):
    code, messages = work(make_job(trainer=TOY, placement={"ranks_per_node": 2}), rank=1, world=2)
    assert code == 0
    code, messages = work(make_job(trainer=TOY, knobs={"world": 1}, placement={"ranks_per_node": 2}), rank=1, world=2)
    assert code == 1
    assert failed(messages)["kind"] == "crash"
    assert "rank 1 of 2 was asked for, the engine (toy) made rank 1 of 1" in failed(messages)["message"]
    assert "different installations" in failed(messages)["message"]
    assert phases(messages) == ["join"]  # nothing was built or measured


def test_what_a_trainer_cannot_do_is_unsupported(make_job, work):
    code, messages = work(make_job(precision="float32"))
    assert code == 1
    assert failed(messages)["kind"] == "unsupported"
    assert "the reference runs with precision float64, not float32" in failed(messages)["message"]


def test_a_diverged_training_says_so_after_its_record(make_job, work):
    code, messages = work(make_job(lr=1e30, passes=["native"]))
    assert code == 1
    assert failed(messages)["kind"] == "diverged"
    assert "of the native pass" in failed(messages)["message"]
    (record,) = by_type(messages, "pass")
    assert record["record"]["loss"] is None
    assert len(record["record"]["step_s"]) == 3


@pytest.mark.parametrize("method", ["step", "update", "step_alone"])
def test_only_a_pass_that_exchanges_can_diverge(make_job, work, method):
    every = ["native", "staged", "compute_only", "comm_only"]
    loss = dict({"step": 0.5, "update": 0.5, "step_alone": 0.5}, **{method: "nan"})
    job = make_job(trainer=TOY, knobs={"loss": loss}, placement={"ranks_per_node": 2}, passes=every)
    code, messages = work(job, rank=0, world=2)
    measured = [message["record"]["pass"] for message in by_type(messages, "pass")]
    if method != "step_alone":
        assert (code, failed(messages)["kind"]) == (1, "diverged")
        assert measured == every[: 1 + every.index({"step": "native", "update": "staged"}[method])]
        return
    assert (code, messages[-1]["type"], measured) == (0, "done", every)
    notes = {name: note for message in by_type(messages, "notes") for name, note in message["notes"].items()}
    words = "the loss is nan after 3 steps of the compute_only pass, which trains without the exchange"
    assert notes == {"compute_only": words}


@pytest.mark.parametrize(
    ("method", "error", "kind"),
    [("build", "RuntimeError", "crash"), ("step", "MemoryError", "oom"), ("start", "KeyboardInterrupt", "crash")],
)
def test_an_error_is_reported_with_its_traceback(make_job, work, method, error, kind):
    job = make_job(trainer=TOY, knobs={"raises": {method: error}})
    code, messages = work(job)
    assert code == 1
    found = failed(messages)
    assert (found["kind"], found["message"]) == (kind, "%s: told to in %s" % (error, method))
    assert "in _called" in found["traceback"]
    assert "told to in " + method in (job.parent / "rank-0.log").read_text()


def test_a_missing_framework_is_reported(make_job, work):
    code, messages = work(make_job(trainer="no_such_framework.worker:T"))
    assert code == 1
    assert "no_such_framework" in failed(messages)["message"]


def test_an_unreadable_image_is_named(make_job, work, tmp_path):
    pytest.importorskip("PIL.Image")
    (tmp_path / "photographs" / "class").mkdir(parents=True)
    (tmp_path / "photographs" / "class" / "broken.jpg").write_bytes(b"no image")
    job = make_job(data={"kind": "folder", "path": str(tmp_path / "photographs")}, readers=1, batch=1)
    code, messages = work(job)
    assert code == 1
    assert "cannot read the image" in failed(messages)["message"]
    assert "broken.jpg" in failed(messages)["message"]


def test_a_job_of_another_format_is_not_begun(make_job, work):
    job = make_job(format=99)
    with pytest.raises(FileNotFoundError):  # no message file: the worker does not know this job
        work(job)


def test_cores_of_its_own(make_job, work):
    code, messages = work(make_job(trainer=TOY, placement={"binding": "cores"}))
    assert code == 0
    assert by_type(messages, "hello")[0]["cores"] == [min(os.sched_getaffinity(0))]
    code, messages = work(make_job(trainer=TOY, placement={"binding": "cores", "threads": 4096}))
    assert code == 1
    assert failed(messages)["kind"] == "unavailable"
    assert "rank 0 wants 4096 cores of its own and this host has" in failed(messages)["message"]
    assert "for all of its ranks; ask for fewer threads or ranks per node" in failed(messages)["message"]


def test_devices_of_a_rank_share_its_batch_and_its_cores(make_job, work):
    job = make_job(trainer="toy:SeveralToy", placement={"devices": 2}, passes=["native", "compute_only", "comm_only"])
    code, messages = work(job)
    assert code == 0
    assert by_type(messages, "joined")[0]["devices"] == 2
    records = {message["record"]["pass"]: message["record"] for message in by_type(messages, "pass")}
    assert set(records) == {"native", "compute_only", "comm_only"}
    assert records["native"]["samples"] == 2 * 4 * len(records["native"]["step_s"])


def test_devices_that_the_framework_does_not_drive_are_noticed(make_job, work):
    code, messages = work(make_job(trainer="toy:ToyTrainer", placement={"devices": 2}))
    assert code == 1
    assert "asked to drive 2 devices, the framework drives 1" in failed(messages)["message"]
