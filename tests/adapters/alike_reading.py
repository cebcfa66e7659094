"""The behaviour that readers of photographs share, of files and of each record format; an adapter's tests inherit it.

Conformance compares every kind of picture with the plain source, once. Oldest Python: 3.6.
"""

import gc
import os
import time

import numpy as np
import pytest

from stagebench.suite.worker import packed_set
from stagebench.suite.worker.packed_set import RecordSource
from stagebench.suite.worker.sources import FolderSource
from stagebench.suite.worker.view import View
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from tests.support import data, jobs
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE
from tests.support.pictures import drawn
from tests.support.sent import Nobody

SHAPE, COUNT, SIZE = (3, 64, 64), 12, (341, 256)  # a size that no reader scales


class Reading:
    """The fixture `trainer` makes a started trainer by keywords."""

    formats = ()  # of records that hold photographs
    files = ("files",)  # formats whose order and crops the seed decides
    most = 4.0  # levels that a pixel may be off the plain source's; 0.5 on the average
    words = ()  # (format, words of its reader)

    def pytest_generate_tests(self, metafunc):
        if "form" in metafunc.fixturenames:
            metafunc.parametrize("form", ["files", *self.formats])

    @pytest.fixture
    def photographs(self, tmp_path):
        """A folder of twelve, of two classes."""
        for number in range(COUNT):
            folder = tmp_path / "photographs" / ("class" + str(number % 2))
            folder.mkdir(parents=True, exist_ok=True)
            drawn(number, *SIZE).save(str(folder / (str(number) + ".jpg")), quality=95)
        return tmp_path / "photographs"

    def opened(self, trainer, folder, form="files", rank=0, world=1, asked=(), **options):
        """(A trainer that reads, its view)."""
        ours = trainer(**dict({"readers": 1, "batch": 4}, **options))
        ours.setup = ours.setup._replace(rank=rank, world=world)
        b = Builder("flat", SHAPE, 2)
        b.head(b.dense("out", b.flatten("f", "input"), 2))
        ours.build(b.graph, dict(weights.initial(b.graph)))
        gc.collect()  # some formats can be open once in a process
        source, place = FolderSource(str(folder), SHAPE), folder.parent / form
        if form != "files":
            if not place.exists():
                place.mkdir()
                packed_set.pack(ours, source, jobs.packing(form, place, parts=2), Nobody())
            source = RecordSource(str(place))
            source.check(SHAPE, 2)
            source = ours.open_records(source)
        view = View(source, READ_ONCE._replace(**dict(asked)), 1, str(folder.parent / "skipped.txt"))
        ours.open_input(view)
        return ours, view

    def numbers(self, ours, folder, batches):
        """Which samples come, after their pixels and labels were compared."""
        plain, found = FolderSource(str(folder), SHAPE), []
        samples = [plain.sample(index) for index in range(COUNT)]
        true = plain.photographs.levels(np.stack([image for image, _ in samples]))
        for _ in range(batches):
            batch = ours.as_numpy(ours.next_batch())
            images = plain.photographs.levels(batch.inputs)
            for at, label in enumerate(batch.labels):
                off = np.abs(true - images[at])
                found.append(int(off.mean((1, 2, 3)).argmin()))
                assert (off[found[-1]].mean() <= 0.5, off[found[-1]].max() <= self.most) == (True, True)
                assert label == samples[found[-1]][1]
        return found

    @pytest.mark.parametrize("readers", [0, 2])
    def test_every_photograph_comes_once_an_epoch_in_another_order(self, trainer, photographs, form, readers):
        runs = []
        for _ in range(2):
            ours, view = self.opened(trainer, photographs, form, readers=readers)
            found = self.numbers(ours, photographs, 2 * COUNT // 4)
            epochs = [found[:COUNT], found[COUNT:]]
            assert [sorted(each) for each in epochs] == [list(range(COUNT))] * 2
            assert epochs[0] != epochs[1]
            runs.append(found)
            order = [view.index(position) for position in view.order(0, 1, 0, 1)]
            assert dict(self.words).get(form, "") in ours.notes()["reader"]
            ours.close()
            del view
        if form in self.files:
            assert runs[0] == runs[1]
        if form == "files":
            assert epochs[0] == order

    def test_ranks_share_an_epoch(self, trainer, photographs, form):
        found = []
        for rank in range(2):
            ours = self.opened(trainer, photographs, form, rank, 2, batch=2, readers=0)[0]
            found += self.numbers(ours, photographs, COUNT // 4)
            ours.close()
        assert sorted(found) == list(range(COUNT))

    def test_random_crops_change_with_the_epoch(self, trainer, photographs, form):
        runs = []
        for _ in range(2):
            ours = self.opened(trainer, photographs, form, asked={"augment": "random"}, batch=COUNT)[0]
            runs.append([ours.as_numpy(ours.next_batch()).inputs.copy() for _ in range(2)])
            ours.close()
        one, other = (np.sort(images.mean((1, 2, 3))) for images in runs[0])
        assert not np.allclose(one, other)
        assert np.abs(runs[0]).max() < 3  # of pixels from 0 to 255, in standard deviations
        if form in self.files:
            np.testing.assert_array_equal(*runs)

    @pytest.mark.parametrize("readers", [0, 2])
    @pytest.mark.parametrize("damage", [b"not a picture", data.BOMB], ids=["no picture", "a bomb"])
    def test_a_photograph_that_cannot_be_read_is_named_or_skipped(self, trainer, photographs, readers, damage):
        (photographs / "class1" / "3.jpg").write_bytes(damage)
        ours, _ = self.opened(trainer, photographs, readers=readers)
        with raising(OSError, "class1/3.jpg"):
            for _ in range(COUNT // 4):
                ours.next_batch()
        ours, view = self.opened(trainer, photographs, asked={"on_error": "skip"}, readers=readers)
        for _ in range(COUNT // 4):
            assert len(ours.as_numpy(ours.next_batch()).labels) == 4
        (skipped,) = view.skipped()
        assert "class1/3.jpg" in skipped

    def test_more_ranks_than_photographs_are_refused(self, trainer, photographs):
        for form in self.formats:
            with pytest.raises(ValueError, match=r"\d"):
                self.opened(trainer, photographs, form, 0, 100)

    def test_closing_ends_the_threads(self, trainer, photographs, form):
        self.opened(trainer, photographs, form, readers=2)[0].close()  # what a framework starts once
        before = threads()
        ours = self.opened(trainer, photographs, form, readers=2)[0]
        ours.next_batch()
        ours.close()
        give_up = time.time() + 120
        while threads() > before and time.time() < give_up:
            time.sleep(0.05)
        assert threads() <= before

    def test_a_broken_record_file_is_named(self, trainer, photographs):
        for form in self.formats:
            self.opened(trainer, photographs, form)[0].close()
            path = self.records(photographs.parent / form)
            path.write_bytes(bytes(path.stat().st_size))
            with raising(OSError, path.name):
                ours = self.opened(trainer, photographs, form)[0]
                for _ in range(COUNT):
                    ours.next_batch()

    def records(self, folder):
        """The file of records that a test damages."""
        raise NotImplementedError


def threads():
    return len(os.listdir("/proc/self/task"))
