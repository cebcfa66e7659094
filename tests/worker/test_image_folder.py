"""Folders of images as people have them: what systems leave in them, and folders of another layout."""

import os

import pytest

from stagebench.suite.worker.image_folder import IMAGE_SUFFIXES, SYSTEM_NAMES, left_out_words, listed
from tests.support.errors import raising


def fill(folder, *paths):
    """Empty files; a path that ends with a slash is an empty folder."""
    for path in paths:
        place = os.path.join(str(folder), *path.split("/"))
        os.makedirs(place if path.endswith("/") else os.path.dirname(place), exist_ok=True)
        if not path.endswith("/"):
            open(place, "w").close()
    return str(folder)


TINY = ("test/images/1.JPEG", "val/images/1.JPEG", *("train/n%d/images/1.JPEG" % number for number in range(250)))
TWO = ("a/1.jpg", "a/2.JPEG", "b/1.png", "b/notes.txt")


def names(folder):
    found = listed(folder)
    return [(os.path.relpath(path, folder).replace(os.sep, "/"), label) for path, label in found.files], found.classes


@pytest.mark.parametrize(
    "more",
    [
        ".ipynb_checkpoints/1-checkpoint.jpg",
        ".git/x.png",
        "@eaDir/1.jpg",
        "lost+found/",
        "__MACOSX/._1.jpg",
        "System Volume Information/1.jpg",
        "a/._1.jpg",
        "a/.hidden.png",
        "left/",
        "left/Thumbs.db",
        "left/.DS_Store",
        "left/sub/.DS_Store",
        "1.jpg",
        "a/3.heic",
        b"a/._r\xe9.jpg".decode("utf-8", "surrogateescape"),
    ],
)
def test_what_systems_leave_is_neither_a_class_nor_an_image(tmp_path, more):
    folder = fill(tmp_path, *(TWO + (more,)))
    assert names(folder) == ([("a/1.jpg", 0), ("a/2.JPEG", 0), ("b/1.png", 1)], ["a", "b"])
    (left_out,) = listed(folder).left_out
    more = more.replace("\udce9", "\\xe9")
    assert left_out == (more.split("/")[0] + "/" if "/" in more and not more.startswith("a/") else more)
    assert left_out_words([left_out]) == "left out 1, neither a class nor an image: %s" % left_out


def test_files_that_are_no_images_are_not_worth_a_word_and_of_many_the_first_are_named(tmp_path):
    folder = fill(tmp_path, *(TWO + ("dataset.json", ".DS_Store", "a/Thumbs.db", "a/@eaDir/1.jpg/x")))
    assert listed(folder).left_out == []
    assert left_out_words([]) == ""
    words = left_out_words(["a/", "b/", "c/", "d/", "e/"])
    assert words == "left out 5, neither classes nor images: a/, b/, c/ and 2 more"


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"a/r\xe9.jpg", "a/r\\xe9.jpg"), (b"r\xe9/1.jpg", "r\\xe9"), (b"a/\xff\xc3\xa9.png", "a/\\xff\u00e9.png")],
)
def test_a_name_that_is_no_text_is_refused_with_its_codes(tmp_path, name, shown):
    folder = fill(tmp_path, *(TWO + (os.fsdecode(name),)))
    with raising(ValueError, "%s/%s" % (folder, shown)) as refused:
        listed(folder)
    assert str(refused.value).encode("utf-8").count(b"\n") == 0


@pytest.mark.parametrize("target", ["/nowhere/dog", "dog", "."])
def test_a_class_that_is_a_link_to_nothing_or_to_its_set_is_refused(tmp_path, target):
    folder = fill(tmp_path, *TWO)
    os.symlink(target, os.path.join(folder, "dog"))
    with raising(ValueError, "%s/dog" % folder):
        listed(folder)


def test_every_format_that_is_read_is_an_image_and_every_system_name_is_known_in_any_case(tmp_path):
    images = tuple("c/1" + suffix.upper() for suffix in IMAGE_SUFFIXES)
    found = listed(fill(tmp_path, *TWO + images, *(name.upper() + "/1.jpg" for name in SYSTEM_NAMES)))
    assert (len(found.files), len(found.left_out)) == (3 + len(images), len(SYSTEM_NAMES))


@pytest.mark.parametrize(
    ("holds", "given", "says"),
    [
        (("train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg"), "", "has no images in train; .*: give {}/train$"),
        (("ILSVRC/Data/CLS-LOC/train/a/1.jpg", "ILSVRC/Data/CLS-LOC/train/b/1.jpg"), "", ": give .*CLS-LOC/train$"),
        (("annotations/x.xml", "val/a/1.jpg", "val/b/1.jpg"), "", "no images in annotations; .*: give {}/val$"),
        (("a/1.jpg", "b/1.jpg"), "a", "{}/a has no class folders; one level .*: give {}$"),
        (("1.JPEG", "2.JPEG"), "", "{} has no class folders; .*: sort its images into such folders$"),
        (("train/a/1.jpg", "train/b/1.jpg", "val/1.jpg"), "val", "{}/val has no class folders; .*: sort its images"),
        (("n01/images/1.JPEG", "n02/images/1.JPEG"), "", "lie deeper, in n01/images: move or link the images of each"),
        (("train/n01/images/1.JPEG", "train/n02/images/2.JPEG"), "", "lie deeper, in train/n01/images: move or link"),
        (TINY, "", "has no images in test; .* lie deeper, in train/n0/images: move or link the images of each class"),
        (("train/1.jpg", "test/1.jpg"), "", "{}: test and train are parts of a set, not classes; .* give one part$"),
        (("a/1.jpg", "b/1.txt"), "", "no images in b; .* class: put its images into it, or move it out of the set$"),
        (("a/1.jpg", "b/1.HEIC"), "", "no images in b; .* class, not .heic: save its images in one of these formats$"),
        (("train/a/1.jpg", "train/b/1.jpg", "test/1.jpg"), "", "has no images in train; .*: give {}/train$"),
        (("Train/1.jpg", "test/1.jpg", "labels/x.txt"), "", "{}: Train and test are parts of a set, not classes; "),
        (("set/a/1.jpg", "set/b/1.jpg", "__MACOSX/set/a/._1.jpg"), "", "has no images in set; .*: give {}/set$"),
        (("a/1.jpg", "b/2.jpg", "c/sub/3.jpg"), "", "no images in c; .* lie deeper, in c/sub: move or link the images"),
        (("left/", ".git/1.jpg"), "", "{} has no class folders; one level of folders is read"),
    ],
)  # fmt: skip
def test_a_folder_of_another_layout_is_refused_with_the_folder_to_give(tmp_path, holds, given, says):
    root = fill(tmp_path / "set", *holds)
    with pytest.raises(ValueError, match=says.replace("{}", root)) as refused:
        listed(os.path.join(root, given) if given else root)
    assert "remove" not in str(refused.value)
