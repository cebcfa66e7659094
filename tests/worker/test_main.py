"""A whole worker in a process of its own: what it sends, and how it fails."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stagebench.suite.worker import messages
from stagebench.suite.worker.contract import SGD
from stagebench.suite.worker.job import FORMAT, DataSet, MakeOracle, Prove
from stagebench.suite.worker.messages import of_type
from stagebench.suite.worker.variables import Variables
from tests.support import data
from tests.support.jobs import graph, measure

TOY = "toy:ToyTrainer"
EVERY = ("native", "staged", "compute_only", "comm_only")


def phases(found):
    return [message.name for message in of_type(messages.Phase, found)]


def first_core():
    return min(os.sched_getaffinity(0))


def notes_of(found):
    return {name: note for each in of_type(messages.Notes, found) for name, note in each.notes.items()}


def failed(found):
    assert isinstance(found[-1], messages.Failed)
    assert not of_type(messages.Done, found)
    return found[-1]


def test_what_a_rank_did_before_its_first_step_is_kept_and_its_output_goes_to_a_log(
    make_job, work, monkeypatch, tmp_path
):
    """What its trainer told its libraries, once it has joined; how long it took; which cores a framework left it."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "before")
    set_while_joining = {"GLOO_SOCKET_IFNAME": "eth7", "RING_CYCLE_TIME": "1.0", "RING_RANK": "0"}
    knobs = {"tells": set_while_joining, "sleep": {"start": 0.2, "build": 0.1}, "binds": [first_core()]}
    knobs["computes"] = str(tmp_path / "attempt-0" / "rank-0.jsonl")
    job = make_job(trainer=TOY, knobs=knobs, variables=Variables([], ["RING_"], ["RING_RANK"]))
    code, found = work(job)
    assert (code, found[-1]) == (0, messages.Done())
    assert (job.parent / "rank-0.log").read_text() == "the toy says hello on its standard output\n"
    (hello,), (joined,) = of_type(messages.Hello, found), of_type(messages.Joined, found)
    assert hello.settings["GLOO_SOCKET_IFNAME"] == "before"
    assert joined.settings == {**hello.settings, "GLOO_SOCKET_IFNAME": "eth7", "RING_CYCLE_TIME": "1.0"}
    (built,) = of_type(messages.Built, found)
    assert joined.load_s >= 0.2
    assert built.seconds >= 0.1
    assert (joined.cores, joined.bound) == ([first_core()], [])
    signs = [(message.name, message.phase) for message in of_type(messages.Progress, found)]
    assert ("build", "at work, seconds") in signs, "a rank alone that builds for long shows that it goes on"


def test_a_core_to_which_a_library_binds_a_thread_is_reported(make_job, work):
    _, found = work(make_job(trainer=TOY, knobs={"binds_thread": first_core()}))
    (hello,), (joined,) = of_type(messages.Hello, found), of_type(messages.Joined, found)
    assert joined.cores == hello.cores
    assert joined.bound == [first_core()] * (len(hello.cores) > 1)


def test_a_core_to_which_threads_and_readers_are_bound_later_is_reported_after_the_task(make_job, work):
    _, found = work(make_job(trainer=TOY, knobs={"binds_later": first_core()}))
    first, *later = of_type(messages.Joined, found)
    assert first.bound == []
    assert later == [first._replace(bound=[first_core()] * 2)] * (len(first.cores) > 1)


def test_measuring_a_real_network(make_job, work, monkeypatch):
    for name, value in (("UCX_NET_DEVICES", "eth7"), ("OMPI_MCA_orte_hnp_uri", "a daemon's"), ("MKL_NUM_THREADS", "7")):
        monkeypatch.setenv(name, value)
    code, found = work(make_job())
    assert code == 0
    assert isinstance(found[-1], messages.Done)
    hello, joined = of_type(messages.Hello, found)[0], of_type(messages.Joined, found)[0]
    assert (hello.rank, hello.world, hello.format) == (0, 1, FORMAT)
    assert hello.numpy == np.__version__
    assert (hello.settings["UCX_NET_DEVICES"], "OMPI_MCA_orte_hnp_uri" in hello.settings) == ("eth7", False)
    assert hello.threads == {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "7"}
    assert hello.host_cores == os.cpu_count() >= len(hello.cores)
    assert hello.boot
    assert (joined.rank, joined.world, joined.transport) == (0, 1, "none")
    assert phases(found) == ["join", "build", "native", "staged"]
    native, staged = of_type(messages.Pass, found)
    assert (native.name, staged.name) == ("native", "staged")
    assert native.host_use is None
    assert staged.host_use is None or staged.host_use.seconds >= staged.wall_s
    assert native.samples == 4 * len(native.step_s) == 12
    assert native.wall_s > 0
    assert staged.loss < native.loss < 4.0  # a repeated batch is learnt
    assert min(staged.stage_s["communication"]) < 0.1 * min(staged.stage_s["backward"])


def test_layer_times_are_of_the_staged_pass_alone_without_its_warm_up(make_job, work):
    code, found = work(make_job(measure(*EVERY), trainer="toy:LayeredToy", world=2), rank=0, world=2)
    assert code == 0
    assert tuple(each.name for each in of_type(messages.Pass, found)) == EVERY
    ((row,),) = (each.layers for each in of_type(messages.Layers, found))
    staged = next(each for each in of_type(messages.Pass, found) if each.name == "staged")
    made = len(staged.step_s) + len(staged.spans_s)  # a block begins with an iteration that does not count
    assert (row.forward_s, row.backward_s, row.communication_s) == (made, made, made)


def test_what_fails_after_the_passes_costs_a_note_each(make_job, work):
    job = make_job(measure("native", "staged", "kernels"), trainer="toy:SpentToy")
    code, found = work(job)
    assert code == 0
    assert [each.name for each in of_type(messages.Pass, found)] == ["native", "staged"]
    assert notes_of(found) == {
        "layers": "not timed: RuntimeError: no layers",
        "kernels": "not timed: RuntimeError: no kernels",
        "subnormal numbers": "not known: RuntimeError: no parameters",
        "notes": "not known: RuntimeError: no notes",
    }


def test_real_arrays_are_read(make_job, work, tmp_path):
    path = data.noise(tmp_path / "digits.npz", 20)
    code, found = work(make_job(measure("staged", "io_only", data=DataSet("arrays", path)), readers=1))
    assert code == 0
    staged, alone = of_type(messages.Pass, found)
    assert sum(staged.stage_s["io"]) > 0
    assert len(alone.step_s) == 3
    assert messages.Notes({"data": "digits.npz (20 samples)"}) in found


def test_oracle_and_proof(make_job, work, tmp_path):
    oracle = tmp_path / "oracle"
    oracle.mkdir()
    code, _ = work(make_job(MakeOracle(graph(), str(oracle), 4), knobs={"shards": 2, "observed": 1, "bits": 53}))
    assert code == 0
    assert json.loads((oracle / "meta.json").read_text())["samples"] == 4
    code, found = work(make_job(Prove(graph(), str(oracle), 4)))
    assert code == 0
    (proof,) = of_type(messages.Proof, found)
    assert proof.parameter_count == 402442
    assert proof.macs == 627840
    # Without batch normalisation, shards change nothing but the order of sums.
    assert proof.losses.native == pytest.approx(proof.losses.oracle, rel=1e-12)
    assert max(proof.errors["gradient"].values()) < 6e-8


def test_another_world_than_asked_for_is_refused(make_job, work):
    code, found = work(make_job(trainer=TOY, world=2), rank=1, world=2)
    assert code == 0
    code, found = work(make_job(trainer=TOY, knobs={"world": 1}, world=2), rank=1, world=2)
    assert code == 1
    assert failed(found).kind == "crash"
    assert "rank 1 of 2 was asked for, the engine (toy) made rank 1 of 1" in failed(found).message
    assert "different installations" in failed(found).message
    assert phases(found) == ["join"]  # nothing was built or measured


def test_what_a_trainer_cannot_do_or_does_wrong_is_reported(make_job, work):
    code, found = work(make_job(precision="float32"))
    assert code == 1
    assert failed(found).kind == "unsupported"
    assert "the reference runs with precision float64, not float32" in failed(found).message
    _, found = work(make_job(trainer=TOY, knobs={"loss": [0.1, 0.2]}))
    place = r"\((tests/worker/toy|suite/worker/\w+)\.py, line \d+: \S.*\)$"
    assert re.search(place, failed(found).message), failed(found).message
    code, found = work(make_job(trainer="toy:ToyTrainer", devices=2, batch=8))
    assert code == 1
    assert "asked to drive 2 devices, the framework drives 1" in failed(found).message


def test_a_diverged_training_says_so_after_its_record(make_job, work):
    code, found = work(make_job(measure("native"), optimiser=SGD(1e30, 0.9, 0.0)))
    assert code == 1
    assert failed(found).kind == "diverged"
    assert "of the native pass" in failed(found).message
    (native,) = of_type(messages.Pass, found)
    assert math.isnan(native.loss)
    assert len(native.step_s) == 3


@pytest.mark.parametrize("method", ["step", "update", "step_alone"])
def test_only_a_pass_that_exchanges_can_diverge(make_job, work, method):
    loss = dict({"step": 0.5, "update": 0.5, "step_alone": 0.5}, **{method: "nan"})
    code, found = work(make_job(measure(*EVERY), trainer=TOY, knobs={"loss": loss}, world=2), rank=0, world=2)
    measured = tuple(each.name for each in of_type(messages.Pass, found))
    if method != "step_alone":
        assert (code, failed(found).kind) == (1, "diverged")
        assert measured == EVERY[: 1 + EVERY.index({"step": "native", "update": "staged"}[method])]
        return
    assert (code, found[-1], measured) == (0, messages.Done(), EVERY)
    notes = notes_of(found)
    assert list(notes) == ["layers", "compute_only"]
    assert notes["layers"] == "not timed: ToyTrainer does not say how its layers are timed"
    assert notes["compute_only"].endswith(" steps of the compute_only pass, which trains without the exchange")


@pytest.mark.parametrize(
    ("method", "error", "kind"),
    [("build", "RuntimeError", "crash"), ("step", "MemoryError", "oom"), ("start", "KeyboardInterrupt", "crash")],
)
def test_an_error_is_reported_with_its_traceback(make_job, work, method, error, kind):
    job = make_job(trainer=TOY, knobs={"raises": {method: error}})
    code, found = work(job)
    assert code == 1
    last = failed(found)
    assert last.kind == kind
    told, _, place = last.message.partition(" (")
    assert told == "%s: told to in %s" % (error, method)
    assert re.match(r"tests/worker/toy\.py, line \d+: raise getattr", place) if kind == "crash" else not place
    assert "in _called" in last.traceback
    assert "told to in " + method in (job.parent / "rank-0.log").read_text()


def test_an_unreadable_image_and_a_missing_framework_are_named(make_job, work, tmp_path):
    pytest.importorskip("PIL.Image")
    (tmp_path / "photographs" / "class").mkdir(parents=True)
    (tmp_path / "photographs" / "class" / "broken.jpg").write_bytes(b"no image")
    task = measure("native", data=DataSet("folder", str(tmp_path / "photographs")))
    code, found = work(make_job(task, readers=1, batch=1))
    assert code == 1
    assert "cannot read the image" in failed(found).message
    assert "broken.jpg" in failed(found).message
    code, found = work(make_job(trainer="no_such_framework.worker:T"))
    assert code == 1
    assert "no_such_framework" in failed(found).message


def test_a_job_of_another_format_is_not_begun(make_job, work):
    job = make_job()
    job.write_text(job.read_text().replace('"format": %d' % FORMAT, '"format": 99'))
    with pytest.raises(FileNotFoundError):  # no message file: the worker does not know this job
        work(job)


def test_cores_of_its_own(make_job, work):
    code, found = work(make_job(trainer=TOY, binding="cores", readers=4))
    assert code == 0
    assert of_type(messages.Hello, found)[0].cores == [first_core()], "nobody reads synthetic data"
    code, found = work(make_job(trainer=TOY, binding="cores", threads=4096))
    assert code == 1
    assert failed(found).kind == "unavailable"
    assert "rank 0 wants 4096 cores of its own and this host has" in failed(found).message
    assert "for all of its ranks; ask for fewer threads or ranks per node" in failed(found).message


def test_devices_of_a_rank_share_its_batch_and_its_cores(make_job, work):
    passes = ("native", "compute_only", "comm_only")
    code, found = work(make_job(measure(*passes), trainer="toy:SeveralToy", devices=2, batch=8))
    assert code == 0
    assert of_type(messages.Joined, found)[0].devices == 2
    measured = of_type(messages.Pass, found)
    assert tuple(each.name for each in measured) == passes
    assert measured[0].samples == 2 * 4 * len(measured[0].step_s)


STUCK = """
import sys, threading, types
from stagebench.suite.worker import main
from stagebench.suite.worker.ranks import Outbox
main.LEAVING = 0.2
main.close(types.SimpleNamespace(close=threading.Event().wait), Outbox(sys.argv[1], 0))
"""


def test_a_process_that_its_framework_does_not_let_go_ends_as_done_and_its_log_says_where(tmp_path):
    environ = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]))
    tokens = [sys.executable, "-c", STUCK, str(tmp_path)]
    ended = subprocess.run(tokens, env=environ, stderr=subprocess.PIPE, timeout=300)
    assert ended.returncode == 0
    assert b"in wait" in ended.stderr
    sent = [messages.decode(line) for line in (tmp_path / "rank-0.jsonl").read_text().splitlines()]
    note = {"closing": "ended by force: the framework took longer than 0.2 s"}
    assert sent == [messages.Notes(note), messages.Done()]
