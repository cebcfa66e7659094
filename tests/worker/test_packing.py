"""Data sets packed as records: whole, in parts, interrupted, with bad images; and what a damaged set says."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import toy

from stagebench.suite.worker.job import DataSet, Read
from stagebench.suite.worker.messages import Done, Notes
from stagebench.suite.worker.packed_set import RecordSource, pack, record
from stagebench.suite.worker.photographs import shrunk
from stagebench.suite.worker.sources import ArraySource, FolderSource
from tests.support import data, trainers
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE, graph, packing

SHAPE = (3, 32, 32)


class Quiet:
    """Remembers the progress."""

    def __init__(self):
        self.steps = []

    def progress(self, name, phase, step, of):
        self.steps.append((step, of))


@pytest.fixture
def photographs(tmp_path):
    """Two classes of three noisy images."""
    return data.photographs(tmp_path / "photographs", {"ant": 3, "bee": 3}, (40, 60))


@pytest.fixture
def wanted(tmp_path):
    def make(parts=2, form="records", **changes):
        folder = tmp_path / "packed"
        folder.mkdir(exist_ok=True)
        data = DataSet("folder", str(tmp_path / "photographs"))
        return packing(form, folder, parts, data=data)._replace(**changes)

    return make


def packed(source, wanted, **knobs):
    outbox = Quiet()
    pack(toy.PackingToy(trainers.setup(knobs=knobs)), source, wanted, outbox)
    return RecordSource(wanted.folder), outbox.steps


def content(records, key):
    found = []
    for path in records.paths():
        with np.load(path) as part:
            found += part[key].tolist()
    return found


def test_every_sample_is_packed_once_over_mixed_parts_as_the_network_s_input(photographs, wanted):
    source = FolderSource(str(photographs), SHAPE)
    records, steps = packed(source, wanted(), slip=None)
    assert (len(records), records.classes, records.form, records.kind) == (6, 2, "records", "folder")
    assert records.name == "photographs as records (6 samples)"
    assert sorted(content(records, "number")) == list(range(6))
    assert content(records, "number") != list(range(6)), "neighbours in a folder are of one class"
    keys = ("number", "label", "name", "size", "image")
    for number, label, name, size, image in zip(*(content(records, key) for key in keys)):
        path, true = source.files[number]
        assert (label, name, size) == (true, "/".join(path.split("/")[-2:]), os.path.getsize(path))
        np.testing.assert_array_equal(image, source.sample(number)[0])
    assert steps == [(number, 6) for number in range(1, 7)]
    assert len(records.parts) == 2
    assert not os.path.isdir(records.joined)
    assert not [name for name in os.listdir(records.path) if name.endswith(".partial")]


def test_an_array_file_has_no_encoded_images(tmp_path, wanted):
    path = tmp_path / "ten.npz"
    np.savez(str(path), images=np.arange(160, dtype=np.uint8).reshape(10, 4, 4), labels=np.arange(10) % 3)
    records, _ = packed(ArraySource(str(path), (1, 4, 4)), wanted(parts=3))
    assert sorted(content(records, "number")) == list(range(10))
    assert set(content(records, "size")) == {0}
    assert set(content(records, "name")) == {""}
    records.check((1, 4, 4), 3)


def test_packing_goes_on_where_it_was_interrupted(photographs, wanted):
    source, asked = FolderSource(str(photographs), SHAPE), wanted(parts=3)
    with pytest.raises(OSError, match="No space left on device"):
        packed(source, asked, room=3)  # in the second part
    assert sorted(os.listdir(asked.folder)) == ["part-00000", "part-00001.partial"]
    with raising(ValueError, asked.folder):
        RecordSource(asked.folder)
    whole = os.stat(os.path.join(asked.folder, "part-00000", "toy.npz")).st_mtime_ns
    records, steps = packed(source, asked)
    assert os.stat(os.path.join(records.parts[0], "toy.npz")).st_mtime_ns == whole, "it is not written again"
    assert steps == [(number, 6) for number in range(3, 7)]
    assert sorted(content(records, "number")) == list(range(6))


def test_an_interrupted_join_begins_anew(photographs, wanted):
    source, asked = FolderSource(str(photographs), SHAPE), wanted(form="joined")
    half = Path(asked.folder, "joined.partial")
    half.mkdir()
    (half / "index.txt").write_text("half of")
    (path,) = packed(source, asked)[0].paths()
    assert path == os.path.join(asked.folder, "joined", "index.txt")
    assert Path(path).read_text().split() == ["part-00000", "part-00001"]


def test_a_bad_image_ends_it_or_is_left_out_by_name(photographs, wanted):
    (photographs / "bee" / "1.jpg").write_bytes(b"no image")
    source = FolderSource(str(photographs), SHAPE)
    with raising(OSError, "bee/1.jpg"):
        packed(source, wanted())
    records, _ = packed(source, wanted(on_error="skip"))
    assert (len(records), sorted(content(records, "number"))) == (5, [0, 1, 2, 3, 5])
    skipped = json.loads(Path(records.path, "records.json").read_text())["skipped"]
    assert skipped["samples"] == 1
    assert "bee/1.jpg" in skipped["which"][0]


def test_nothing_that_can_be_read_is_no_set(photographs, wanted):
    for path in photographs.glob("*/*.jpg"):
        path.write_bytes(b"no image")
    asked = wanted(on_error="skip")
    with raising(ValueError, 6, "photographs"):
        packed(FolderSource(str(photographs), SHAPE), asked)
    assert not os.path.exists(os.path.join(asked.folder, "records.json"))


def test_a_large_image_is_scaled_where_asked_and_a_small_one_left_alone(photographs):
    image = pytest.importorskip("PIL.Image")
    source = FolderSource(str(photographs), SHAPE)
    whole = Path(source.files[0][0]).read_bytes()
    for resize in (0, 40):
        kept = record(source, 0, resize)
        assert (kept.encoded, kept.path) == (whole, source.files[0][0])
    small = record(source, 0, resize=20)
    assert small.path == "", "no file holds it"
    assert (small.name, small.label) == ("ant/0.jpg", 0)
    with image.open(io.BytesIO(small.encoded)) as opened:
        assert (opened.size, opened.format) == ((30, 20), "JPEG")
    assert shrunk(small.encoded, 20) == small.encoded


@pytest.fixture
def complete(photographs, wanted):
    return packed(FolderSource(str(photographs), SHAPE), wanted(parts=2))[0].path


def change(path, **changes):
    marker = Path(path, "records.json")
    marker.write_text(json.dumps(dict(json.loads(marker.read_text()), **changes)))


def test_a_set_that_cannot_be_read_says_why(complete, tmp_path):
    with raising(ValueError, "nowhere"):
        RecordSource(str(tmp_path / "nowhere"))
    change(complete, format=99)
    with raising(ValueError, 99, 3):
        RecordSource(complete)
    change(complete, format=3, parts=["part-00000", "part-00007"])
    with raising(ValueError, "packed", "part-00007"):
        RecordSource(complete)
    Path(complete, "records.json").write_text("{")
    with pytest.raises(ValueError, match=r"records.json.*no JSON"):
        RecordSource(complete)
    os.truncate(os.path.join(complete, "records.json"), 1 << 25)
    with raising(ValueError, "records.json", 33554432):
        RecordSource(complete)


@pytest.mark.parametrize(
    ("damage", "holds"),
    [(lambda path: os.truncate(path, os.path.getsize(path) // 2), "bytes"), (os.remove, "nothing")],
)
def test_a_set_whose_files_are_not_what_was_packed_is_refused(complete, damage, holds):
    damaged = next(path for path in RecordSource(complete).paths() if os.path.getsize(path))
    damage(damaged)
    with raising(ValueError, os.path.basename(damaged), holds):
        RecordSource(complete)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": "many"}, r"\.samples: .*'many'"),
        ({"samples": 0}, r" has 0 samples"),
        ({"classes": 0}, r" has 6 samples"),
        ({"samples": -1}, r" has -1 samples"),
        ({"parts": ["../elsewhere"]}, r" names \S+, .*lies outside"),
        ({"parts": ["/etc"]}, r" names \S+, .*lies outside"),
        ({"files": {"part-00000/../../secret": 3}}, r" names \S+, .*lies outside"),
    ],
)
def test_a_marker_that_nothing_can_be_learnt_from_or_that_leads_out_of_its_set_is_refused(complete, changes, words):
    change(complete, **changes)
    with pytest.raises(ValueError, match=r"records\.json" + words):
        RecordSource(complete)


def test_a_set_that_does_not_fit_the_network_says_why(complete):
    records = RecordSource(complete)
    records.check((3, 224, 224), 2)  # whole images fit any
    with raising(ValueError, 2, 1):
        records.check((3, 224, 224), 1)
    change(complete, shape=[3, 32, 32])
    with raising(ValueError, "3, 32, 32", "3, 224, 224"):
        RecordSource(complete).check((3, 224, 224), 2)
    with pytest.raises(ValueError, match="reader's own"):
        records.sample(0)


def test_a_worker_packs_and_reads(make_job, work, wanted, photographs):
    net, trainer, task = graph("alexnet"), "toy:PackingToy", wanted(parts=1)
    code, sent = work(make_job(task._replace(graph=net), trainer=trainer))
    assert (code, sent[-1]) == (0, Done())
    assert len(RecordSource(task.folder)) == 6
    job = make_job(Read(net, DataSet("records", task.folder), READ_ONCE, 6), trainer=trainer, batch=4)
    code, sent = work(job)
    assert (code, sent[-1]) == (0, Done())
    with np.load(str(job.parent / "read.npz")) as found:
        assert found["images"].shape == (6, 3, 227, 227)
        assert sorted(found["labels"].tolist()) == [0, 0, 0, 1, 1, 1]
    assert Notes({"reader": "the toy's"}) in sent


def test_a_trainer_without_records_says_so(make_job, work, complete, wanted, tmp_path):
    task = Read(graph("alexnet"), DataSet("records", complete), READ_ONCE, 4)
    code, sent = work(make_job(task, trainer="toy:ToyTrainer"))
    assert (code, sent[-1].kind) == (1, "unsupported")
    assert "ToyTrainer does not read records" in sent[-1].message
    np.savez(str(tmp_path / "a.npz"), images=np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256, labels=range(3))
    task = wanted(data=DataSet("arrays", str(tmp_path / "a.npz")), folder=str(tmp_path / "new"))
    code, sent = work(make_job(task, trainer="toy:ToyTrainer"))
    assert (code, sent[-1].kind) == (1, "unsupported")
    assert "ToyTrainer writes no records" in sent[-1].message
