"""Files and LMDB deliver the right samples, in the order every adapter follows."""

import struct
from pathlib import Path

import lmdb
import numpy as np
import pytest

from stagebench.adapters.caffempi import input as lmdb_input
from stagebench.adapters.caffempi.datum import Datum, parsed
from stagebench.adapters.caffempi.input import Database, Part
from stagebench.suite.worker.packed_set import Record, RecordSource
from stagebench.suite.worker.sources import ArraySource, FolderSource
from stagebench.suite.worker.threaded import batches_of_indices
from stagebench.suite.worker.view import View
from tests.adapters.alike_reading import Reading
from tests.support import data, trainers
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE, mark
from tests.support.trainers import by_strategy

trainer_of = by_strategy("caffempi")

ASKED = READ_ONCE


def made(**changes):
    ours = trainer_of(trainers.setup(**{"tuning": "tuned", "readers": 2, **changes}))
    ours.start()
    return ours


def packed(source, folder, kind, parts=2):
    """The source as LMDB, as `stagebench.suite.worker.packed_set` has it made."""
    for part in range(parts):
        (folder / f"part-{part:05d}").mkdir(parents=True)
        made().pack("lmdb", (one(source, i) for i in range(part, len(source), parts)), str(folder / f"part-{part:05d}"))
    shape = () if kind == "folder" else source.sample(0)[0].shape
    names = [f"part-{part:05d}" for part in range(parts)]
    mark(folder, "lmdb", kind, source.classes, len(source), names, shape)
    records = RecordSource(str(folder))
    records.check(source.sample(0)[0].shape, source.classes)
    return records


def one(source, index):
    image, label = source.sample(index)
    encoded = None if source.files is None else Path(source.files[index][0]).read_bytes()
    return Record(index, label, "", encoded, image)


@pytest.fixture
def folder(tmp_path):
    return FolderSource(str(data.photographs(tmp_path / "images", {"ants": 5, "bees": 5})), (3, 32, 32))


def digits(tmp_path):
    return ArraySource(data.noise(tmp_path / "digits.npz", 30), (1, 28, 28))


def test_a_database_of_arrays_has_the_same_floats_in_a_quarter_of_the_size(tmp_path, monkeypatch):
    source = digits(tmp_path)
    stored = Database(packed(source, tmp_path / "lmdb", "arrays"))
    assert len(stored) == len(source)
    for index in range(len(source)):
        image, label = stored.sample(index)
        assert (image.dtype, label) == (np.float32, source.sample(index)[1])
        np.testing.assert_array_equal(image, source.sample(index)[0])
    levels = parsed(stored._parts[0].get(lmdb_input.KEY.pack(0)))
    assert (len(levels.data), len(levels.floats)) == (784, 0)
    monkeypatch.setattr(lmdb_input, "LEVELS", 100)  # more values than that: floats, of those samples that have them
    stored = Database(packed(source, tmp_path / "floats", "arrays"))
    np.testing.assert_array_equal(stored.sample(7)[0], source.sample(7)[0])
    assert stored.taken([0, 7]) is None
    assert len(parsed(stored._parts[0].get(lmdb_input.KEY.pack(0))).floats) == 784


@pytest.mark.parametrize(("parts", "readers"), [(1, 0), (3, 2)])
def test_arrays_come_in_batches_and_in_order(tmp_path, parts, readers):
    source = digits(tmp_path)
    ours = made(readers=readers, batch=7)
    view = View(ours.open_records(packed(source, tmp_path / "lmdb", "arrays", parts)), ASKED, 1, "unused")
    ours.open_input(view)
    wanted = batches_of_indices(view, ours.setup)
    assert view.source.taken([0]) is not None
    for _ in range(9):  # two epochs
        batch, positions = ours.next_batch(), next(wanted)
        np.testing.assert_array_equal(batch.inputs, np.stack([source.sample(at % 30)[0] for at in positions]))
        assert batch.labels.tolist() == [source.sample(at % 30)[1] for at in positions]
        assert (batch.inputs.dtype, batch.labels.dtype) == (np.float32, np.int64)
    ours.close()


def test_an_environment_grows_as_it_fills(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(lmdb_input, "FIRST_SIZE", 1 << 15)
    stored = Database(packed(folder, tmp_path / "lmdb", "folder", parts=1))
    np.testing.assert_array_equal(stored.sample(9)[0], folder.sample(9)[0])
    assert stored.paths() == [str(tmp_path / "lmdb" / "part-00000" / "data.mdb")]


@pytest.mark.parametrize("readers", [0, 2])
def test_a_broken_photograph_is_named_by_file_and_key_or_skipped(folder, tmp_path, readers):
    assert folder.files is not None
    records = packed(folder, tmp_path / "lmdb", "folder")
    environment = lmdb.open(records.parts[1], lock=False)
    with environment.begin(write=True) as transaction:  # odd numbers lie in the second part
        transaction.put(lmdb_input.KEY.pack(3), Datum(0, (0, 0, 0), b"not a picture", (), True).to_bytes())
        transaction.put(lmdb_input.KEY.pack(5), b"\xff\xff no message")
    environment.close()
    stored = Database(records)
    with raising(OSError, "part-00001/data.mdb, key 3"):
        stored.sample(3)
    with raising(OSError, "part-00001/data.mdb, key 5"):
        stored.sample(5)
    ours = made(readers=readers, batch=10)
    view = View(stored, ASKED._replace(on_error="skip"), 1, str(tmp_path / "skipped.txt"))
    ours.open_input(view)
    assert ours.next_batch().inputs.shape == (10, 3, 32, 32)
    ours.close()
    assert len(view.skipped()) == 2


def test_a_broken_database_is_named(folder, tmp_path):
    records = packed(folder, tmp_path / "lmdb", "folder")
    path = Path(records.parts[0]) / "data.mdb"
    whole = path.read_bytes()
    path.write_bytes(b"no database" * 1000)
    with raising(OSError, "part-00000/data.mdb"):
        Database(records)
    path.write_bytes(whole[: len(whole) - 4096])
    with raising(OSError, "data.mdb"):
        Database(records)
    path.write_bytes(whole)
    records.parts.pop()
    with pytest.raises(OSError, match=r"lmdb .*10 .*holds 5"):
        Database(records)


def test_the_message_is_caffes():
    # As protoc's Python writes it: Datum(channels=1, height=2, width=300, data=b"ab", label=7, float_data=[1.5]).
    message = b"\x08\x01\x10\x02\x18\xac\x02" + b"\x22\x02ab" + b"\x28\x07" + b"\x32\x04" + struct.pack("<f", 1.5)
    assert Datum(7, (1, 2, 300), b"ab", [1.5], False).to_bytes() == message
    found = parsed(memoryview(message))
    assert (found.label, found.shape, bytes(found.data), found.floats.tolist(), found.encoded) == (
        (7, (1, 2, 300), b"ab", [1.5], False)
    )
    assert parsed(message + b"\x38\x01").encoded
    for end in (1, 8, 10, len(message) - 1):
        with pytest.raises(ValueError, match=r"a Datum|not end"):
            parsed(message[:end])


def test_part_is_mapped_without_locks(folder, tmp_path):
    part = Part(packed(folder, tmp_path / "lmdb", "folder", parts=1).parts[0])
    assert isinstance(part.get(lmdb_input.KEY.pack(0)), memoryview)
    assert not (tmp_path / "lmdb" / "part-00000" / "lock.mdb").exists()


class TestReading(Reading):
    formats, files, most, words = ("lmdb",), ("files", "lmdb"), 0.01, (("lmdb", "LMDB"),)

    def opened(self, *given, **options):
        ours, view = super().opened(*given, **options)
        ours._database = None  # its reader has it until it is closed: it can be open once in a process
        return ours, view

    def records(self, folder):
        return folder / "part-00000" / "data.mdb"
