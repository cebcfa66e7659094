"""CNTK's own reader of images, where its libraries are; and what it says where they are not."""

import io
import json
import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from stagebench.adapters.cntk import imagemap, libraries
from stagebench.suite.worker import packed_set
from stagebench.suite.worker.contract import Batch, Unavailable
from stagebench.suite.worker.packed_set import RecordSource
from stagebench.suite.worker.sources import FolderSource
from stagebench.suite.worker.view import View
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from stagebench.workloads.catalogue import PHOTOGRAPHS, Preprocessing
from tests.support import jobs
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE
from tests.support.sent import Nobody

Image = pytest.importorskip("PIL.Image")
MISSING = libraries.missing()
needs_libraries = pytest.mark.skipif(bool(MISSING), reason=libraries.remedy(MISSING))
SHAPE = (3, 224, 224)
SAMPLES = 14
AS_IT_IS, LARGER = (341, 256), (500, 375)  # what need not be scaled is equal


def photograph(number, size=AS_IT_IS):
    pixels = np.random.RandomState(number).randint(0, 255, (6, 8, 3)).astype(np.uint8)
    return Image.fromarray(pixels).resize(size, 3)


def encoded(image, form="JPEG", **how):
    written = io.BytesIO()
    image.save(written, form, **dict({"quality": 95} if form == "JPEG" else {}, **how))
    return written.getvalue()


@pytest.fixture
def photographs(tmp_path):
    for name, count in (("ant", 6), ("bee", 8)):
        (tmp_path / "photographs" / name).mkdir(parents=True)
        for number in range(count):
            content = encoded(photograph(number + 10 * count))
            (tmp_path / "photographs" / name / ("%d.jpg" % number)).write_bytes(content)
    return tmp_path / "photographs"


def packed(trainer, folder, photographs, parts=2, resize=0):
    source = FolderSource(str(photographs), SHAPE)
    folder.mkdir()
    packed_set.pack(trainer(), source, jobs.packing(imagemap.FORM, folder, parts=parts, resize=resize), Nobody())
    records = RecordSource(str(folder))
    records.check(SHAPE, 1000)
    return records


def reading(trainer, records, rank=0, world=1, augment="centre", threads=1, **options):
    ours = trainer(**options)
    ours.setup = ours.setup._replace(rank=rank, world=world, threads=threads)
    ours.open_input(View(records, READ_ONCE._replace(augment=augment), 1, os.devnull))
    return ours


def numbers(photographs, batch, within=1e-4):
    """Which samples these are, after their pixels and labels were compared."""
    source = FolderSource(str(photographs), SHAPE)
    true = [source.sample(index) for index in range(len(source))]
    found = []
    for image, label in zip(batch.inputs, batch.labels):
        off = [np.abs(image - each).mean() for each, _ in true]
        found.append(int(np.argmin(off)))
        assert min(off) < within
        assert label == true[found[-1]][1]
    return found


def read(ours, photographs, batches):
    return [number for _ in range(batches) for number in numbers(photographs, ours.as_numpy(ours.next_batch()))]


@needs_libraries
@pytest.mark.parametrize("parts", [1, 3])
def test_every_image_comes_once_a_sweep_as_everybody_else_decodes_it(trainer, tmp_path, photographs, parts):
    records = packed(trainer, tmp_path / "records", photographs, parts)

    def sweeps():
        ours = reading(trainer, records, batch=4, readers=1)
        found = read(ours, photographs, 7)
        assert "ImageDeserializer, 1 thread" in ours.notes()["reader"]
        ours._reader.close()
        return found

    both = sweeps()
    first, second = both[:SAMPLES], both[SAMPLES:]
    assert sorted(first) == sorted(second) == list(range(SAMPLES))
    assert first != second
    assert sweeps() == both  # the seed decides


@needs_libraries
@pytest.mark.parametrize("world", [2, 3])
def test_the_ranks_shares_of_a_sweep_are_the_set(trainer, tmp_path, photographs, world):
    records, seen = packed(trainer, tmp_path / "records", photographs), Counter()
    for rank in range(world):
        ours = reading(trainer, records, rank, world, batch=2)
        batches = SAMPLES // world // 2
        seen.update(read(ours, photographs, batches))
    assert set(seen.values()) == {1}
    assert len(seen) == SAMPLES // world // 2 * 2 * world


@needs_libraries
def test_a_larger_image_is_scaled_by_opencvs_filter_and_cut_at_the_same_place(trainer, tmp_path, photographs):
    for number, path in enumerate(sorted(photographs.glob("*/*.jpg"))):
        path.write_bytes(encoded(photograph(number, LARGER if number % 2 else LARGER[::-1])))
    ours = reading(trainer, packed(trainer, tmp_path / "records", photographs), batch=SAMPLES)
    # smooth images: what a pixel's shift would be is a quarter of a level here, another place would be tens
    assert sorted(numbers(photographs, ours.next_batch(), within=0.5 / 57)) == list(range(SAMPLES))


@needs_libraries
def test_random_crops_differ_from_sweep_to_sweep_and_not_from_run_to_run(trainer, tmp_path, photographs):
    records = packed(trainer, tmp_path / "records", photographs)

    def two_sweeps():
        ours = reading(trainer, records, augment="random", batch=SAMPLES, readers=1)
        return [ours.next_batch().inputs.copy() for _ in range(2)]

    first, again = two_sweeps(), two_sweeps()
    np.testing.assert_array_equal(first, again)
    means = [np.sort(sweep.mean(axis=(1, 2, 3))) for sweep in first]
    assert not np.allclose(*means)
    assert np.abs(first).max() < 3  # of pixels from 0 to 255, normalised


@needs_libraries
def test_a_set_scaled_as_it_is_packed_has_copies_and_no_other_filter(trainer, tmp_path, photographs):
    for number, path in enumerate(sorted(photographs.glob("*/*.jpg"))):
        path.write_bytes(encoded(photograph(number, (600, 450))))
    records = packed(trainer, tmp_path / "records", photographs, resize=256)
    assert all(path.startswith(str(tmp_path / "records")) for path, _ in imagemap.listed(records.joined))
    ours = reading(trainer, records, batch=SAMPLES)
    assert sorted(numbers(photographs, ours.next_batch(), within=2 / 57)) == list(range(SAMPLES))


def seen_threads():
    """How many there were, each time in half a second: who reads ahead ends when it has a batch."""
    counts = []
    for _ in range(50):
        counts.append(len(os.listdir("/proc/self/task")))
        time.sleep(0.01)
    return counts


@needs_libraries
def test_readers_are_threads_and_leave_the_trainings_own_alone(trainer, tmp_path, photographs):
    import ctypes

    openmp, records, tasks = ctypes.CDLL("libiomp5.so"), packed(trainer, tmp_path / "records", photographs), {}
    for readers, threads in ((1, 2), (3, 1)):
        ours = reading(trainer, records, batch=7, readers=readers, threads=threads)
        for _ in range(4):
            ours.next_batch()
        tasks[readers] = seen_threads()
        assert openmp.omp_get_max_threads() == threads
        ours._reader.close()
    assert max(tasks[3]) >= min(tasks[1]) + 2


@needs_libraries
def test_what_cntk_has_read_trains(trainer, tmp_path, photographs):
    b = Builder("small", SHAPE, 5)
    b.head(b.dense("fc", b.flatten("flat", b.max_pool("pool", b.conv_relu("conv", "input", 4, 7, stride=8), 3, 3)), 5))
    for precision in ("float32", "float64"):
        ours = reading(trainer, packed(trainer, tmp_path / precision, photographs), batch=2, precision=precision)
        ours.build(b.graph, dict(weights.initial(b.graph)))
        host = ours.next_batch()
        source = FolderSource(str(photographs), SHAPE)
        true = [source.sample(number) for number in numbers(photographs, host)]
        losses = []
        for batch in (host, Batch(np.stack([image for image, _ in true]), np.array([label for _, label in true]))):
            ours.forward(ours.to_device(batch))
            losses.append(ours.loss())
        ours.step(ours.to_device(host))
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def odd(path):
    """Images that CNTK must not see as they stand."""
    turned = photograph(1).getexif()
    turned[imagemap.ORIENTATION] = 6
    yield path / "turned.jpg", encoded(photograph(1), exif=turned.tobytes())
    yield path / "ink.jpg", encoded(photograph(2).convert("CMYK"))
    yield path / "a@b.jpg", encoded(photograph(3))
    yield path / "tab\there.jpg", encoded(photograph(4))
    yield path / "deep.png", encoded(Image.fromarray(np.arange(341 * 256, dtype=np.uint16).reshape(256, 341)), "PNG")
    yield path / "painted.jpg", encoded(photograph(5), "BMP")


def even(path):
    """Images that it may."""
    upright = photograph(1).getexif()
    upright[imagemap.ORIENTATION] = 1
    yield path / "upright.jpg", encoded(photograph(6), exif=upright.tobytes())
    yield path / "grey.jpg", encoded(photograph(7).convert("L"))
    yield path / "a name with spaces \u00e9.png", encoded(photograph(8).convert("RGBA"), "PNG")
    yield path / "palette.png", encoded(photograph(9).convert("P"), "PNG")


@pytest.fixture
def mixed(tmp_path):
    """(a folder of all of them, the names of the odd ones)."""
    (tmp_path / "mixed" / "ant").mkdir(parents=True)
    names = []
    for each, kept in ((odd, names), (even, [])):
        for path, content in each(tmp_path / "mixed" / "ant"):
            path.write_bytes(content)
            kept.append(path.name)
    return tmp_path / "mixed", names


def test_only_what_would_be_read_otherwise_is_copied(trainer, tmp_path, mixed):
    folder, names = mixed
    records = packed(trainer, tmp_path / "records", folder)
    paths = [path for path, _ in imagemap.listed(records.joined)]
    theirs = {Path(path).name for path in paths if Path(path).parent == folder / "ant"}
    assert theirs == {path.name for path in (folder / "ant").iterdir()} - set(names)
    assert len(paths) == len(theirs) + len(names)
    assert all(os.path.exists(path) for path in paths)
    assert set(paths) <= set(imagemap.MappedImages(records).paths()), "what the page cache holds"


@needs_libraries
def test_all_of_them_are_read_alike(trainer, tmp_path, mixed):
    folder, _ = mixed
    ours = reading(trainer, packed(trainer, tmp_path / "records", folder), batch=10)
    assert sorted(numbers(folder, ours.next_batch())) == list(range(10))


@pytest.mark.parametrize(
    ("slip", "told"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:900]), 900),
    ],
)
def test_an_image_that_is_not_what_was_packed_is_named(trainer, tmp_path, photographs, slip, told):
    records = packed(trainer, tmp_path / "records", photographs)
    slip(photographs / "bee" / "2.jpg")
    with raising(OSError, "bee/2.jpg", told):
        imagemap.check(records.joined)


@needs_libraries
def test_an_image_that_breaks_while_it_is_read_is_named(trainer, tmp_path, photographs):
    records = packed(trainer, tmp_path / "records", photographs)
    broken = photographs / "bee" / "2.jpg"
    broken.write_bytes(b"x" * broken.stat().st_size)
    with raising(OSError, "images.map", "bee/2.jpg"):
        read(reading(trainer, records, batch=SAMPLES), photographs, 1)


@needs_libraries
def test_more_ranks_than_images_are_refused(trainer, tmp_path, photographs):
    records = packed(trainer, tmp_path / "records", photographs)
    with raising(ValueError, 100):
        reading(trainer, records, 0, 100)


def test_without_the_libraries_their_names_and_the_remedy_are_told(trainer, tmp_path, photographs, monkeypatch):
    records = packed(trainer, tmp_path / "records", photographs)
    monkeypatch.setitem(libraries.IMAGE_LIBRARIES, "libnowhere.so.1", "libnowhere 1.0")
    with pytest.raises(Unavailable, match=r"finds no .*libnowhere\.so\.1; build .*libnowhere 1\.0 from source") as told:
        reading(trainer, records)
    assert libraries.SETTING in str(told.value)


def test_the_figures_of_the_preprocessing_are_passed_on():
    from stagebench.adapters.cntk.input import transforms

    whole, cut = transforms(PHOTOGRAPHS, 224, random=False)
    assert (whole["width"], whole["scaleMode"], cut["cropSize"]) == (256, "crop", "224:224")
    as_a_job_has_it = Preprocessing(**json.loads(json.dumps(PHOTOGRAPHS._asdict())))
    cut, whole = transforms(as_a_job_has_it, 224, random=True)
    assert (cut["areaRatio"], cut["aspectRatio"], whole["height"]) == ("0.08:1", "0.75:1", 224)
