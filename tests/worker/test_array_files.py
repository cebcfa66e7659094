"""Array files that are not what they say, and labels and pixels that cannot train: one sentence each.

Oldest Python: 3.6.
"""

import io
import os
import pickle
import re
import struct
import zipfile

import numpy as np
import pytest

from stagebench.suite.worker import array_files
from stagebench.suite.worker.array_files import described, loaded
from stagebench.suite.worker.image_folder import listed
from tests.support.errors import raising
from tests.support.memory import little_memory

GOOD = np.arange(4 * 2 * 3, dtype=np.uint8).reshape(4, 2, 3)
CLASSES = np.arange(4)


def member(array, **changes):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **changes)
    return stream.getvalue()


def claims(shape, descr="|u1"):
    """A member whose header promises more than it holds."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": descr})
    return stream.getvalue() + b"1234"


def test_what_can_train_is_read_be_it_images_of_one_pixel(tmp_path):
    path = str(tmp_path / "good.npz")
    np.savez_compressed(path, images=GOOD, labels=CLASSES)
    images, labels = loaded(path)
    assert (images == GOOD).all()
    assert (labels == CLASSES).all()
    assert described(path)[0] == (4, 2, 3)
    np.savez_compressed(path, images=np.tile(GOOD, (5000, 1, 1)), labels=np.tile(CLASSES, 5000))
    assert len(loaded(path)[1]) == 20000, "as small as deflate makes it"
    path = str(tmp_path / "set.npz")
    np.savez(path, images=GOOD[:, :1, :1], labels=CLASSES)
    assert len(loaded(path)[0]) == 4


@pytest.mark.parametrize(
    ("images", "labels", "told"),
    [
        (GOOD, CLASSES[:3], "holds 4 images and 3 labels; write one label for each image"),
        (GOOD[:0], CLASSES[:0], "holds no samples; write one image at least"),
        (GOOD, CLASSES - 1, "has the label -1; number the classes from 0"),
        (GOOD, CLASSES << 60, "has the label %d, and frameworks count to 2147483647; number" % (CLASSES.max() << 60)),
        (GOOD, CLASSES + 0.5, "has labels of type float64; write them as whole numbers from 0"),
        (GOOD, CLASSES * np.nan, "has labels of type float64"),
        (GOOD, np.array(list("abcd")), "the array 'labels' is of type <U1; write it as numbers"),
        (GOOD, CLASSES == 1, "the array 'labels' is of type bool"),
        (GOOD, np.int64(3), "holds images of shape (4, 2, 3) and labels of shape ()"),
        (np.float64(3), CLASSES, "holds images of shape () and labels of shape (4,)"),
        (np.zeros((4, 2, 3)), CLASSES, "has the same value in every pixel"),
        (GOOD * 0 + np.arange(4).reshape(4, 1, 1), CLASSES, "has images of a single colour each"),
        (GOOD, CLASSES * 0 + 3, "has the label 3 for every image; write images of two classes at least"),
        (GOOD * np.nan, CLASSES, "has pixels that are no numbers"),
        (GOOD.astype("datetime64[s]"), CLASSES, "the array 'images' is of type datetime64[s]; write it as numbers"),
        (np.array([None] * 4), CLASSES, "the array 'images' is of type object; write it as numbers"),
    ],
)
def test_what_cannot_train_is_refused(tmp_path, images, labels, told):
    path = str(tmp_path / "set.npz")
    np.savez(path, images=images, labels=labels)
    with pytest.raises(ValueError, match=re.escape(told)) as refused:
        loaded(path)
    assert path in str(refused.value)
    assert "; " in str(refused.value), "a remedy follows"


def archive(**members):
    """An array file of such members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name + ".npy", content)
    return stream.getvalue()


def changed(content, begin, end, bits):
    return content[:begin] + bytes(byte ^ bits for byte in content[begin:end]) + content[end:]


WHOLE = archive(images=member(GOOD), labels=member(CLASSES))
NOISE = archive(images=member(np.random.RandomState(0).randint(0, 255, (4, 50, 50))), labels=member(CLASSES))
MARKED = WHOLE.index(b"PK\x01\x02") + 8  # and at 6: whether a member is encrypted
CODE = b"\x93NUMPY\x01\x00" + struct.pack("<H", 24) + b"__import__('os').getpid()"
NO_SETS = {
    "an array": member(GOOD),
    "a pickle": pickle.dumps(GOOD),
    "cut off": WHOLE[:-200],
    "flipped": changed(NOISE, 300, 900, 0xFF),
    "text": archive(images=b"no array", labels=member(CLASSES)),
    "half": archive(images=member(GOOD)),
    "huge": archive(images=claims((10**7, 1000, 1000)), labels=member(CLASSES)),
    "negative": archive(images=claims((-1, 2, 3)), labels=member(CLASSES)),
    "code": archive(images=CODE, labels=b""),
    "encrypted": changed(changed(WHOLE, MARKED, MARKED + 1, 1), 6, 7, 1),
}


@pytest.mark.parametrize("name", sorted(NO_SETS))
@pytest.mark.parametrize("read", [loaded, described])
def test_a_file_that_is_not_what_it_says_is_named(tmp_path, name, read):
    if name == "flipped" and read is described:
        pytest.skip("its header may be whole")
    (tmp_path / "set.npz").write_bytes(NO_SETS[name])
    with pytest.raises(ValueError, match=r"set\.npz"):
        read(str(tmp_path / "set.npz"))


def test_a_few_bytes_do_not_become_gigabytes(tmp_path, monkeypatch):
    """What a header promises is there, zeros all."""
    monkeypatch.setattr(array_files, "FREE", 1 << 20)
    path, images = tmp_path / "set.npz", claims((1, 2000, 2000))[:-4] + bytes(2000 * 2000)
    path.write_bytes(archive(images=images, labels=member(CLASSES[:1])))
    with raising(ValueError, "set.npz", 4000000):
        loaded(str(path))


def test_want_of_memory_is_no_damage(tmp_path):
    path = tmp_path / "set.npz"
    np.savez_compressed(str(path), images=np.tile(GOOD, (1, 4000, 2000)), labels=CLASSES)
    with little_memory(1 << 26), pytest.raises(MemoryError):
        loaded(str(path))
    np.savez(str(path), images=GOOD, labels=CLASSES * 0)
    with raising(ValueError, 0):
        described(str(path))  # one class is refused before the images are read


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(str(tmp_path / "set.npz"))
    with pytest.raises(ValueError, match="no file"):
        loaded(str(tmp_path / "set.npz"))
    (tmp_path / "a").mkdir()
    os.symlink("round.jpg", str(tmp_path / "a" / "round.jpg"))
    with raising(ValueError, "round.jpg", "Too many levels of symbolic links"):
        listed(str(tmp_path))
    os.unlink(str(tmp_path / "a" / "round.jpg"))
    os.mkfifo(str(tmp_path / "a" / "x.jpg"))
    with raising(ValueError, "x.jpg"):
        listed(str(tmp_path))
