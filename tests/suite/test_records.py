"""Sets packed through an adapter's own interpreter; what a plan says of a format."""

import json
import os
from pathlib import Path

import pytest

from stagebench.suite.data.sets import making, records_place
from stagebench.suite.errors import RequestError, StagebenchError, StoreError, Unavailable
from stagebench.suite.plugins import adapters
from stagebench.workloads.networks import by_name
from tests.support import data
from tests.support.errors import raising

WORKLOADS = by_name()


@pytest.fixture
def photos(tmp_path):
    """Two classes of eight different images."""
    return Path(data.photographs(tmp_path / "photos", {"ant": 8, "bee": 8}, (5, 7), 20))


@pytest.fixture
def array(tmp_path):
    return Path(data.noise(tmp_path / "noise.npz", 20))


def place(photos: Path, adapter: object, name: str, workload: str = "googlenet") -> Path:
    form = adapters()["gamma"].capabilities.format(name)
    assert form is not None
    return records_place(str(photos), form, WORKLOADS[workload])


def test_a_set_is_packed_in_every_format_that_holds_it(stagebench, gamma, photos):
    told = stagebench("data", "convert", str(photos))
    assert told.code == 0, told.error
    whole, cut = place(photos, gamma, "whole"), place(photos, gamma, "cut")
    assert cut.name == "cut-3x224x224", "what was cut fits one shape"
    assert [line for line in told.out.splitlines() if "16 samples in 1 part, by gamma" in line] == told.out.splitlines()
    shapes = [json.loads((folder / "records.json").read_text())["shape"] for folder in (whole, cut)]
    assert shapes == [[], [3, 224, 224]]
    when = (whole / "part-00000" / "toy.npz").stat().st_mtime_ns
    assert stagebench("data", "convert", str(photos), "--to", "whole").code == 0
    assert (whole / "part-00000" / "toy.npz").stat().st_mtime_ns == when, "what is packed is not packed again"


def test_what_was_cut_in_another_way_stands_elsewhere(gamma):
    whole, cut = (gamma.capabilities.format(name) for name in ("whole", "cut"))
    usual = WORKLOADS["googlenet"]
    other = usual._replace(preprocessing=usual.preprocessing._replace(resize=240))
    assert records_place("imagenet-like", whole, usual) == records_place("imagenet-like", whole, other)
    places = {records_place("imagenet-like", cut, each).name for each in (usual, other)}
    assert len(places) == 2
    assert "cut-3x224x224" in places


def test_what_a_disk_refused_goes_on_later(stagebench, refusal, gamma, photos):
    gamma.room = 5
    told = refusal("data", "convert", photos, "--to", "whole", kind=StagebenchError)
    assert "No space left on device" in told
    assert "the same command continues" in told
    gamma.room = 100
    assert stagebench("data", "convert", str(photos), "--to", "whole").code == 0


def test_a_set_that_another_command_packs_is_refused_with_its_process(stagebench, gamma, photos):
    folder = place(photos, gamma, "whole")
    with making(folder):
        told = stagebench("data", "convert", str(photos), "--to", "whole")
        with raising(RequestError, folder, os.getpid()):
            raise told.error
    assert stagebench("data", "convert", str(photos), "--to", "whole").code == 0
    with making(folder):
        assert stagebench("data", "convert", str(photos), "--to", "whole").code == 0, "what is whole is only read"


def test_a_bad_image_ends_it_and_may_be_skipped_by_the_next_command(stagebench, gamma, photos):
    (photos / "bee" / "1.jpg").write_bytes(b"no image")
    (photos / "bee" / "1.jpg").rename(photos / "bee" / "99.jpg")  # every class's first is looked at before
    told = stagebench("data", "convert", str(photos), "--to", "whole")
    assert "99.jpg" in str(told.error)
    assert "--on-error skip leaves unreadable samples out" in str(told.error)
    told = stagebench("data", "convert", str(photos), "--to", "whole", "--on-error", "skip")
    assert told.code == 0, told.error
    assert "15 samples" in told.out
    assert "skipped: cannot read the image" in told.out


def test_a_set_that_changed_or_other_settings_are_refused(stagebench, gamma, photos):
    assert stagebench("data", "convert", str(photos), "--to", "whole").code == 0
    told = stagebench("data", "convert", str(photos), "--to", "whole", "--resize", "300")
    assert "was packed with other settings (resize 0); remove it" in str(told.error)
    (photos / "bee" / "7.jpg").unlink()
    told = stagebench("data", "convert", str(photos), "--to", "whole")
    assert isinstance(told.error, RequestError)
    assert "was packed before photos changed; remove it, then run the same command again" in str(told.error)


def test_a_place_that_is_a_file_is_named(refusal, gamma, array, data_home):
    data_home.write_text("a file stands where records should")
    told = refusal("data", "convert", array, "--to", "cut", kind=StoreError)
    assert "STAGEBENCH_DATA names another place" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--to", "whle"), "there is no record format 'whle'; did you mean 'whole'?"),
        (("--to", "ordered"), "ordered cannot hold"),
        (("--resize", "100"), "--resize 100 is less than networks are shown (256 pixels)"),
        (("--on-error", "ignore"), "--on-error 'ignore' is neither fail nor skip"),
        (("--workload", "alexnot"), "there is no workload 'alexnot'; did you mean 'alexnet'?"),
        (("--workload", "mnist_small"), "no workload takes"),
    ],
)
def test_a_wrong_request_starts_nothing(refusal, gamma, photos, data_home, arguments, told):
    assert told in refusal("data", "convert", photos, *arguments)
    assert not data_home.exists()


def test_what_has_nothing_to_scale_or_nobody_to_write_it_is_told(stagebench, gamma, array, monkeypatch):
    assert "scales photographs" in str(stagebench("data", "convert", str(array), "--resize", "300").error)
    assert "there is no data set 'digts'" in str(stagebench("data", "convert", "digts").error)
    gamma.requires = ("no_such_framework",)
    monkeypatch.delenv("STAGEBENCH_PYTHON_GAMMA")
    assert isinstance(stagebench("data", "convert", str(array), "--to", "cut").error, Unavailable)
    assert "nothing was packed" in str(stagebench("data", "convert", str(array)).error)


@pytest.fixture
def cases(gamma, cases):
    head = '[[cases]]\nstrategy = "single"\n'
    return lambda text, adapter="gamma": cases(f'{head}adapter = "{adapter}"\n{text}')


def photographs(photos: Path, more: str) -> str:
    return f'workload = "googlenet"\ndata = "{photos}"\n{more}\n'


def test_best_is_the_first_format_that_can_serve(cases, photos, array):
    def best(more):
        (found,) = cases(photographs(photos, 'format = "best"\n' + more))
        return found.case.input.format

    assert best("") == "whole"
    assert best('augment = "random"') == "whole"
    assert best('on_error = "skip"') == "files"
    assert best('passes = ["train"]') == "files"
    assert best('data_mode = "memory"') == "files"
    digits = f'workload = "mnist_small"\ndata = "{array}"\nformat = "best"\n'
    assert cases(digits)[0].case.input.format == "cut"
    assert cases(digits + 'passes = ["train"]\n')[0].case.input.format == "ordered"
    assert cases('workload = "mnist_small"\nformat = "best"\n')[0].case.input.format == "files", "nothing is read"


def test_a_format_that_cannot_serve_says_why(cases, photos, array):
    def refused(more):
        (found,) = cases(photographs(photos, more))
        assert found.outcome == "unsupported"
        return found.reason

    assert (
        refused('format = "cut"\naugment = "random"')
        == "format 'cut' holds images that were cut when they were packed; use augment = 'centre'"
    )
    assert refused('format = "ordered"').startswith("format 'ordered' holds array files, photos is none of them; use")
    assert "shuffles in its own way" in refused('format = "whole"\npasses = ["train"]')
    skipping = refused('format = "whole"\non_error = "skip"')
    assert "leave bad ones out there (stagebench data convert --on-error skip)" in skipping
    with pytest.raises(RequestError, match="unknown format 'hole'; did you mean 'whole'"):
        cases(photographs(photos, 'format = "hole"'))
    (found,) = cases(photographs(photos, 'format = "whole"'), "alpha")
    assert (found.outcome, found.reason) == ("unsupported", "alpha does not read format 'whole'; it reads files")


def test_a_format_whose_reader_lacks_a_library_is_unavailable_and_never_the_best(cases, gamma, photos, stagebench):
    gamma.lacks = "whole"
    (found,) = cases(photographs(photos, 'format = "whole"'))
    assert (found.outcome, found.reason) == ("unavailable", "there is no libgamma.so.1; build it")
    assert cases(photographs(photos, 'format = "best"'))[0].case.input.format == "cut"
    told = stagebench("data", "convert", str(photos))
    assert told.code == 0
    assert not place(photos, gamma, "whole").exists()
    assert place(photos, gamma, "cut").exists()
    assert stagebench("data", "convert", str(photos), "--to", "whole").code == 0, "asked for by name, for elsewhere"
    assert place(photos, gamma, "whole").exists()


def test_a_set_is_unavailable_until_it_is_packed_and_when_it_has_changed(stagebench, cases, gamma, photos):
    ask = photographs(photos, 'format = "cut"')
    (found,) = cases(ask)
    remedy = f"stagebench data convert {photos} --to cut --workload googlenet"
    assert (found.outcome, found.reason.endswith(f"pack it: {remedy}")) == ("unavailable", True)
    assert stagebench(*remedy.split()[1:]).code == 0
    (ready,) = cases(ask)
    assert (ready.outcome, ready.case.id) == (None, found.case.id)
    assert cases(ask.replace("googlenet", "alexnet"))[0].outcome == "unavailable", "it is cut to another size"
    marker = place(photos, gamma, "cut") / "records.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "format": 0}))
    assert "of another release of stagebench (" in cases(ask)[0].reason
    assert "has format 0, this release reads 3); remove it, then" in cases(ask)[0].reason
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "format": 3}))
    (photos / "bee" / "7.jpg").unlink()
    (changed,) = cases(ask)
    assert changed.outcome == "unavailable"
    assert "has changed since it was packed as cut; remove" in changed.reason
