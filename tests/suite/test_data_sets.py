import hashlib
import os
import struct
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stagebench.suite.data import home, locate, made
from stagebench.suite.data.compatibility import Fit, fit
from stagebench.suite.data.decode import header, images, problems
from stagebench.suite.data.make import Photographs, digits, photographs
from stagebench.suite.data.sets import Marker, Recipe, marker_of
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.worker import array_files
from stagebench.suite.worker.job import DataSet
from stagebench.suite.worker.sources import open_source
from stagebench.workloads.networks import by_name
from tests.support import processes
from tests.support.errors import raising

pytest.importorskip("sklearn", reason="making data sets needs scikit-learn: pip install 'stagebench[data]'")
WORKLOADS = by_name()


def hashes(folder: Path) -> dict[str, str]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.jpg")}
    return {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}


def small(folder: Path, **changes: int) -> Photographs:
    return Photographs(folder, **{"classes": 3, "images": 2, "width": 120, "height": 90, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "photos"
    list(photographs(small(path)))
    return path


def test_photographs_are_a_folder_per_class_of_one_size(folder, tmp_path):
    found = images(folder)
    assert [path.parent.name for path in found] == ["class0000"] * 2 + ["class0001"] * 2 + ["class0002"] * 2
    assert {header(path) for path in found} == {(120, 90)}
    assert len(set(hashes(folder).values())) == 6, "every crop is another one"
    assert list(problems(found)) == [None] * 6
    source = open_source(DataSet("folder", str(folder)), (3, 64, 64), 1000)
    image, label = source.sample(5)
    assert (image.shape, label, len(source)) == ((3, 64, 64), 2, 6)
    assert image.std() > 0.1, "a photograph is not flat"
    sizes = [path.stat().st_size for path in photographs(Photographs(tmp_path / "p", classes=2, images=3))]
    assert 70_000 < np.mean(sizes) < 150_000, "the typical size is ImageNet's"
    recipe = Recipe(3, 2, 120, 90, 1, 97)
    assert marker_of(folder) == Marker("stagebench data make imagenet-like", recipe, complete=True)


def test_the_same_seed_gives_the_same_files_and_another_does_not(folder, tmp_path):
    list(photographs(small(tmp_path / "again")))
    list(photographs(small(tmp_path / "other", seed=2)))
    assert hashes(tmp_path / "again") == hashes(folder)
    assert not set(hashes(tmp_path / "other").values()) & set(hashes(folder).values())


def test_a_set_is_located_or_its_remedy_named(folder, data_home):
    alexnet = WORKLOADS["alexnet"]
    assert locate("synthetic", alexnet) is None
    assert locate(str(folder), alexnet) == DataSet("folder", str(folder))
    for place, words in (("real", "stagebench data make imagenet-like"), (str(folder / "nothing"), "not there")):
        with pytest.raises(Unavailable, match=words):
            locate(place, alexnet)


def test_an_interrupted_making_continues_and_what_is_empty_is_made_again(folder, data_home):
    unfinished = data_home / "imagenet-like"
    list(islice(photographs(small(unfinished)), 3))
    assert made("imagenet-like") is None, "an incomplete set is not offered"
    empty, *whole = unfinished.rglob("*.jpg")
    assert len(whole) == 2
    empty.write_bytes(b"")  # as a power failure leaves one
    kept = {path: path.stat().st_mtime_ns for path in whole}
    list(photographs(small(unfinished)))
    assert made("imagenet-like") == unfinished
    assert hashes(unfinished) == hashes(folder)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items()), "what was there is not made again"


def test_a_folder_made_otherwise_is_refused(folder, tmp_path):
    with raising(RequestError, "classes 3"):
        list(photographs(small(folder, classes=4)))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RequestError, match="other files"):
        list(photographs(small(tmp_path)))
    with pytest.raises(RequestError, match="a file"):
        list(photographs(small(tmp_path / "notes.txt")))


def test_a_set_that_another_command_makes_is_refused_with_its_process(folder, tmp_path):
    place = tmp_path / "photos"
    first = photographs(small(place))
    next(first)
    with raising(RequestError, place, os.getpid()):
        next(photographs(small(place)))
    list(first)
    assert hashes(place) == hashes(folder)
    assert len(list(photographs(small(place)))) == 6


def test_two_commands_that_make_the_digits_both_end_with_them(tmp_path):
    script = "from pathlib import Path; from stagebench.suite.data.make import digits; "
    script += f"digits(Path({str(tmp_path)!r}) / 'd.npz')"
    both = [subprocess.Popen([sys.executable, "-c", script], env=processes.variables()) for _ in range(2)]
    assert [each.wait(300) for each in both] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["d.npz"]
    assert len(array_files.loaded(str(tmp_path / "d.npz"))[1]) == 1797


def test_digits_are_28_by_28_and_readable(data_home):
    assert digits(data_home / "digits.npz") == 1797
    with np.load(data_home / "digits.npz") as content:
        assert (content["images"].shape, content["images"].dtype) == ((1797, 28, 28), np.uint8)
        assert np.bincount(content["labels"]).min() > 170
        assert content["images"].max() == 255
    spec = locate("real", WORKLOADS["mnist_small"])
    assert spec == DataSet("arrays", str(data_home / "digits.npz"))
    assert len(open_source(spec, (1, 28, 28), 10)) == 1797


def test_home_follows_the_environment(monkeypatch, tmp_path):
    assert home() == tmp_path / "data-home"
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    assert home() == tmp_path / "data-home"
    monkeypatch.delenv("STAGEBENCH_DATA")
    assert home() == tmp_path / "cache" / "data"
    monkeypatch.delenv("STAGEBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert home() == tmp_path / "stagebench" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".cache" / "stagebench" / "data"


def test_unreadable_images_are_found(tmp_path):
    (tmp_path / "a").mkdir()
    Image.effect_noise((64, 64), 50).convert("RGB").save(tmp_path / "a" / "good.jpg")
    whole = (tmp_path / "a" / "good.jpg").read_bytes()
    (tmp_path / "a" / "half.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "a" / "text.png").write_text("no image")
    good, half, text = problems(images(tmp_path))
    assert good is None
    assert half
    assert text
    assert "half.jpg: image file is truncated" in half
    assert "text.png: not an image whose format is known" in text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", r"is no JSON"),
        ("[]", r"an object is expected"),
        ('{"complete": true}', r"the field 'made_by' is missing"),
        ('{"made_by": "", "complete": 1, "recipe": {}}', r"complete: true or false is expected"),
    ],
)
def test_a_marker_that_is_none_is_named_with_the_remedy(data_home, text, problem):
    folder = data_home / "imagenet-like"
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_text(text)
    assert made("imagenet-like") is None
    with raising(RequestError, "dataset.json", problem):
        next(photographs(Photographs(folder)))


def put_mnist(folder: Path, images: int = 5, labels: int = 5) -> None:
    folder.mkdir(parents=True)
    for name, shape in zip(array_files.PARTS["train"], ((images, 28, 28), (labels,)), strict=True):
        header = struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape)
        (folder / name).write_bytes(header + bytes(int(np.prod(shape)) - 1) + b"\1")


def test_a_person_s_own_mnist_goes_before_digits(data_home):
    graph = by_name()["mnist_small"].graph()
    digits(data_home / "digits.npz")
    assert fit("real", "digits", graph, data_home).data == "digits"
    put_mnist(data_home / "mnist")
    assert fit("real", "digits", graph, data_home) == Fit("mnist", path=data_home / "mnist", samples=5)
    assert locate("mnist", by_name()["mnist_small"]) == DataSet("arrays", str(data_home / "mnist"))
    assert fit(str(data_home / "mnist"), "digits", graph, data_home).outcome is None


def test_mnist_that_is_not_there_or_whose_labels_do_not_match_is_told_before_anything_starts(data_home):
    found = fit("mnist", "digits", by_name()["mnist_small"].graph(), data_home)
    assert found.outcome == "unavailable"
    assert found.reason.endswith(f"get it: put MNIST's idx files (plain or .gz) into {data_home / 'mnist'}")
    put_mnist(data_home / "mnist", images=5, labels=4)
    found = fit("mnist", "digits", by_name()["mnist_small"].graph(), data_home)
    assert found.outcome == "wrong"
    assert "holds 5 images and 4 labels; write one label for each image" in found.reason
