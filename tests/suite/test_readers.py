"""`stagebench data check`: samples that cannot be read, and readers that deliver something else."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stagebench.adapters.pytorch.plugin import PyTorch
from stagebench.suite.data.reader_check import DECODED, EXACT, Bounds, Check, Samples, compare, nearest, some
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.processes.interpreters import find
from stagebench.suite.worker.array_files import loaded
from stagebench.workloads.networks import by_name
from tests.support import data
from tests.support.errors import raising


@pytest.fixture
def array(tmp_path):
    """Digits of noise; the first is there twice, under two labels."""
    images = np.random.RandomState(0).randint(0, 256, (33, 28, 28)).astype(np.uint8)
    images[32] = images[0]
    np.savez(tmp_path / "noise.npz", images=images, labels=np.arange(33) % 10)
    return tmp_path / "noise.npz"


@pytest.fixture
def photos(tmp_path):
    return Path(data.photographs(tmp_path / "photos", {"ant": 4, "bee": 4, "cat": 4}, (12, 16), 20))


def test_readers_that_are_right_are_told_apart_from_nothing(stagebench, gamma, photos, array):
    """One that lacks a library is told as such, and is no failure."""
    ask = ("data", "check", str(photos), "--readers", "--adapter", "gamma", "--samples", "8")
    whole = stagebench(*ask, "--json").out
    rows = json.loads(whole[whole.index("[") :])
    assert [(row["format"], row["samples"]) for row in rows] == [("files", 8), ("whole", 8), ("cut", 8)]
    gamma.lacks, lacking = "whole", "there is no libgamma.so.1; build it"
    told = stagebench(*ask, "--json")
    assert told.code == 0, told.out
    rows = json.loads(told.out[told.out.index("[") :])
    found = [(row["format"], row["samples"], row["problem"], row["unavailable"]) for row in rows]
    assert found == [("files", 8, "", ""), ("whole", 0, "", lacking), ("cut", 8, "", "")]
    assert {row["reader"] for row in rows if row["samples"]} == {"the toy's"}
    assert max(row["most"] for row in rows if row["samples"]) < 1e-3
    assert f"unavailable: {lacking}" in stagebench(*ask).out


def test_arrays_are_compared_to_the_last_digit_and_in_order_where_one_was_asked_for(stagebench, gamma, array):
    told = stagebench("data", "check", str(array), "--readers", "--adapter", "gamma", "--samples", "33")
    assert told.code == 1
    lines = {line.split()[1]: line for line in told.out.splitlines() if line.startswith("gamma  ")}
    assert lines["files"].endswith("ok")
    assert " 32 " in lines["files"], "the one that is there twice counts once"
    assert lines["cut"].endswith("mean 0.001, most 0.001  ok")
    assert lines["ordered"].endswith("samples come in another order than asked for"), "it says that it can"


@pytest.mark.parametrize(
    ("slip", "told"),
    [
        ("none", ""),
        ("bgr", "with the channels reversed: it delivers BGR"),
        ("raise", "crash: rank 0: OSError: the reader met a disk that does not answer"),
    ],
)
def test_what_a_reader_gets_wrong_is_named(gamma, photos, tmp_path, slip, told):
    gamma.slip = slip
    (tmp_path / "check").mkdir()
    check = Check(photos, by_name()["googlenet"], 8, tmp_path / "check")
    found = check.one(gamma, find(gamma, {}), None)  # type: ignore[arg-type]
    assert told in found.problem
    assert bool(told) == bool(found.problem)


def test_a_filter_or_a_decoder_of_its_own_has_looser_bounds_for_its_reason(gamma, photos, tmp_path, monkeypatch):
    form = replace(gamma.capabilities.formats[0], scaling="it scales by area")
    scaled = Check(photos, by_name()["googlenet"], 8, tmp_path)
    assert str(scaled._bounds(gamma, form)) == "mean 6: it scales by area"
    for path in photos.glob("*/*.jpg"):
        Image.open(path).resize((341, 256)).save(path, quality=95)
    (tmp_path / "again").mkdir()
    as_it_is = Check(photos, by_name()["googlenet"], 8, tmp_path / "again")
    assert str(as_it_is._bounds(gamma, form)) == "mean 0.5, most 4", "only where images are scaled"
    monkeypatch.setattr(type(gamma), "decoding", lambda self, case: "it repeats colours")
    assert str(scaled._bounds(gamma, None)) == "mean 2: it repeats colours"
    assert str(scaled._bounds(gamma, gamma.capabilities.formats[0])) == "mean 0.5, most 4", "packed by the plain one"


@pytest.mark.parametrize(
    ("device", "knobs", "refused"),
    [
        ("", {}, None),
        ("cuda", {"decode": "gpu"}, None),
        ("cpu", {"decode": "gpu"}, "needs device = 'cuda': nvJPEG decodes on GPUs"),
        ("cuda", {"decode": "card"}, "is one of 'host', 'gpu', not 'card'"),
        ("cuda", {"microbatches": 2}, "changes nothing under 'single'"),
        ("cuda", {"decod": "gpu"}, "pytorch has no knob 'decod'; did you mean 'decode'?"),
    ],
)
def test_readers_are_asked_for_with_a_device_and_knobs_that_the_adapter_has(photos, tmp_path, device, knobs, refused):
    found = Check(photos, by_name()["googlenet"], 8, tmp_path, device, knobs).refusal(PyTorch())
    assert found is None if refused is None else refused in str(found)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--device", "cuda"), "choose readers; add --readers"),
        (("--readers", "--adapter", "gamma", "--device", "cuda"), "gamma does not do device 'cuda'; it does cpu"),
        (("--readers", "--adapter", "gamma", "--knob", "decode=gpu"), "gamma has no knob 'decode'; known: "),
        (("--readers", "--knob", "decod=gpu"), "gamma has no knob 'decod'; known: "),
        (("--readers", "--adapter", "gamma", "--knob", "decode"), "should read NAME=VALUE"),
        (("--readers", "--adapter", "gama"), "there is no adapter 'gama'; did you mean 'gamma'?"),
        (("--readers", "--adapter", "beta"), "beta reads no data"),
        (("--adapter", "gamma"), "choose readers; add --readers"),
        (("--readers", "--workload", "mnist_small"), "no workload takes"),
        (("--readers", "--samples", "8", "--adapter", "alpha"), "alpha"),
    ],
)
def test_a_wrong_request_is_refused(refusal, gamma, startable, photos, arguments, told):
    startable.adapters["alpha"].requires = ("no_such_framework",)
    assert told in refusal("data", "check", photos, *arguments, kind=RequestError | Unavailable)


def test_a_sample_that_cannot_be_read_is_named_before_anything_starts(refusal, gamma, photos):
    for name in ("ant", "bee", "cat"):
        whole = (photos / name / "3.jpg").read_bytes()
        (photos / name / "3.jpg").write_bytes(whole[: len(whole) // 2])
    told = refusal("data", "check", photos, "--readers", "--adapter", "gamma", "--samples", "12")
    assert f"cannot read the image {photos}/" in told
    assert f"`stagebench data check {photos}` names all" in told


@pytest.mark.parametrize("command", [("data", "check", "set"), ("data", "convert", "set"), ("run", "plan.toml")])
def test_a_set_in_a_folder_whose_name_is_no_text_is_refused(stagebench, gamma, photos, monkeypatch, command):
    there = photos.parent / os.fsdecode(b"caf\xe9")
    there.mkdir()
    photos.rename(there / "set")
    (there / "plan.toml").write_text(
        'name = "x"\n[[cases]]\nadapter = "gamma"\nstrategy = "single"\nworkload = "googlenet"\ndata = "set"\nbatch = 2'
    )
    monkeypatch.chdir(there)
    told = stagebench(*command, *(("-o", str(photos.parent / "run")) if command[0] == "run" else ()))
    assert "caf\\xe9/set" in str(told.error)
    assert str(told.error).encode()


def test_too_few_different_samples_cannot_be_told_apart(gamma, tmp_path):
    same = np.broadcast_to(np.eye(28, dtype=np.uint8), (50, 28, 28))
    np.savez(tmp_path / "one.npz", images=same, labels=np.arange(50) % 2)
    with raising(RequestError, 1, 8):
        Check(tmp_path / "one.npz", by_name()["mnist_small"], 24, tmp_path)


def test_some_samples_of_a_set_are_of_two_classes(tmp_path):
    """One class alone would be refused, and so small a share of a set may well miss the other."""
    images = np.random.default_rng(0).integers(0, 255, (100, 4, 4), np.uint8)
    np.savez(tmp_path / "set.npz", images=images, labels=(np.arange(100) == 51).astype(int))
    found = loaded(str(some(tmp_path / "set.npz", 8, 8, tmp_path)))
    assert sorted(found[1]) == [0] * 7 + [1]


def test_labels_that_do_not_match_are_found(stagebench, tmp_path, array):
    told = stagebench("data", "check", str(array))
    assert (told.code, told.out) == (0, f"{array}: 33 of 33 samples can be read\n")
    np.savez(tmp_path / "bad.npz", images=np.zeros((5, 28, 28), np.uint8), labels=np.zeros(4, int))
    told = stagebench("data", "check", str(tmp_path / "bad.npz"), "--json")
    assert told.code == 1
    (problem,) = json.loads(told.out)["problems"]
    assert problem == f"{tmp_path / 'bad.npz'} holds 5 images and 4 labels; write one label for each image"
    (tmp_path / "worse.npz").write_bytes(b"PK\x03\x04")
    told = stagebench("data", "check", str(tmp_path / "worse.npz"))
    assert told.code == 1
    assert "is no array file (BadZipFile" in told.out


@pytest.mark.parametrize(
    ("slip", "told"),
    [
        ("none", ""),
        ("floats", "delivers float32, not int64"),
        ("labels", "of 1024 labels are wrong"),
        ("order", "in another order"),
    ],
)
def test_a_text_is_compared_token_by_token(gamma, tmp_path, slip, told):
    gamma.slip = slip
    tokens = np.random.RandomState(0).randint(0, 256, 64 * 40).astype(np.uint8)
    (tmp_path / "noise.txt").write_bytes(tokens.tobytes())
    check = Check(tmp_path / "noise.txt", by_name()["gpt_char"], 17, tmp_path)
    found = check.one(gamma, find(gamma, {}), None)  # type: ignore[arg-type]
    assert (found.samples or 16, found.most) == (16, 0.0)
    assert told in found.problem
    assert bool(told) == bool(found.problem)


STREAM = np.random.RandomState(0)
TRUE = Samples(STREAM.randint(0, 256, (8, 3, 6, 6)).astype(np.float32), np.arange(8) % 3)


def changed(
    order: list[int] | None = None, images: np.ndarray | None = None, labels: np.ndarray | None = None
) -> Samples:
    chosen = list(range(8)) if order is None else order
    return Samples(TRUE.images[chosen] if images is None else images, TRUE.labels[chosen] if labels is None else labels)


def test_the_same_in_any_order_is_right_unless_an_order_was_asked_for():
    turned = [3, 1, 0, 2, 7, 6, 5, 4]
    found = compare(changed(turned), TRUE, DECODED)
    assert (found.mean, found.most, found.wrong_labels, found.missing, found.problem) == (0.0, 0.0, 0, 0, "")
    assert compare(changed(turned), TRUE, DECODED, order=turned).problem == ""
    assert compare(changed(turned), TRUE, DECODED, order=list(range(8))).problem.startswith("samples come in another")


def test_decoders_may_round_and_no_more_in_words_too():
    assert compare(changed(images=TRUE.images + 0.49), TRUE, DECODED).problem == ""
    assert "pixels differ by 0.51 on the average" in compare(changed(images=TRUE.images + 0.51), TRUE, DECODED).problem
    one = TRUE.images.copy()
    one[3, 1, 2, 2] += 5
    assert "5 at most" in compare(changed(images=one), TRUE, DECODED).problem
    assert compare(changed(images=one), TRUE, Bounds(6.0, float("inf"), "why")).problem == ""
    assert compare(changed(images=TRUE.images + 0.002), TRUE, EXACT).problem
    assert compare(changed(images=TRUE.images * np.nan), TRUE, DECODED).problem, "no number is no pixel"
    assert str(DECODED) == "mean 0.5, most 4"
    assert str(Bounds(6.0, float("inf"), "it scales by area")) == "mean 6: it scales by area"


def test_channels_in_the_wrong_order_have_a_name():
    told = compare(changed(images=TRUE.images[:, ::-1]), TRUE, DECODED).problem
    assert told.endswith("by 0 with the channels reversed: it delivers BGR")
    assert "BGR" not in compare(changed(images=np.roll(TRUE.images, 1, axis=3)), TRUE, DECODED).problem


def test_labels_and_lost_samples_are_counted_and_images_of_another_shape_not_compared():
    wrong = compare(changed(labels=(TRUE.labels + (np.arange(8) < 3)) % 3), TRUE, DECODED)
    assert (wrong.wrong_labels, wrong.problem) == (3, "3 of 8 labels are wrong")
    lost = compare(changed([0, 0, 2, 3, 4, 5, 6, 6]), TRUE, DECODED)
    assert (lost.missing, lost.problem) == (2, "2 of 8 samples did not come in the first epoch")
    found = compare(changed(images=TRUE.images[..., 1:]), TRUE, DECODED)
    assert found.problem == "delivers images of (3, 6, 5), not of (3, 6, 6)"


def test_the_nearest_is_found_by_single_precision_over_large_images():
    images = STREAM.randint(0, 256, (12, 3, 96, 96)).astype(np.float32)
    images[1] = images[0]
    images[1, 0, :8, :8] = 255 - images[0, 0, :8, :8]  # as much as a corner tells them apart
    order = STREAM.permutation(12)
    rounded = images[order] + STREAM.uniform(-0.5, 0.5, images.shape).astype(np.float32)
    assert nearest(rounded, images).tolist() == order.tolist()
