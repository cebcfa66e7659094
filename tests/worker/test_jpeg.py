"""Decoding by Pillow's library or by simplejpeg: the same pixels, the same refusals."""

from io import BytesIO

import numpy as np
import pytest

from stagebench.suite.worker import photographs

Image = pytest.importorskip("PIL.Image")


def encoded(size, mode="RGB", form="JPEG"):
    """A photograph of sorts: smooth in all three colours."""
    across, down = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    pixels = np.stack([across, down, 255 - across], axis=-1).astype(np.uint8)
    if mode == "YCCK":  # with fewer colours than pixels, as Photoshop writes it
        inks = np.asarray(Image.fromarray(pixels).convert("CMYK"))
        return pytest.importorskip("simplejpeg").encode_jpeg(255 - inks, 95, "CMYK", "420")
    written = BytesIO()
    Image.fromarray(pixels).convert(mode).save(written, form, quality=95)
    return written.getvalue()


@pytest.fixture(params=["pillow", "simplejpeg"])
def each_decoder(request, monkeypatch):
    """The decoder of either kind of environment, where it is installed."""
    module = None if request.param == "pillow" else pytest.importorskip("simplejpeg")
    monkeypatch.setattr(photographs, "decoder", lambda: module)


@pytest.mark.parametrize(
    ("mode", "form"), [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("YCCK", "JPEG"), ("RGB", "PNG")]
)
def test_whatever_is_in_the_file_it_becomes_rgb(each_decoder, tmp_path, mode, form):
    path = tmp_path / "image"
    path.write_bytes(encoded((64, 48), mode, form))
    with Image.open(str(path)) as opened:
        found = np.asarray(photographs.in_rgb(opened), dtype=float)
    with Image.open(BytesIO(encoded((64, 48), "RGB" if mode in ("CMYK", "YCCK") else mode, "PNG"))) as opened:
        expected = np.asarray(opened.convert("RGB"), dtype=float)
    assert np.abs(found - expected).mean() < 1.5


def test_a_file_cut_off_is_refused_and_a_mere_warning_is_not(each_decoder):
    data = encoded((640, 480))
    with Image.open(BytesIO(data[: len(data) // 2])) as opened, pytest.raises(OSError, match="truncated"):
        photographs.in_rgb(opened)
    with Image.open(BytesIO(data[:-2] + b"\0\0\0\0" + data[-2:])) as opened:  # "extraneous bytes before marker"
        assert photographs.in_rgb(opened).size == (640, 480)


def test_exif_is_left_out_and_nothing_else():
    turned = Image.Exif()
    turned[0x0112] = 6
    for form in ("JPEG", "PNG"):
        plain = encoded((64, 48), form=form)
        assert photographs.without_exif(plain) == plain
    plain, written = BytesIO(), BytesIO()
    with Image.open(BytesIO(encoded((64, 48)))) as opened:
        opened.save(plain, "JPEG")
        opened.save(written, "JPEG", exif=turned.tobytes())
    assert b"Exif" in written.getvalue()
    assert photographs.without_exif(written.getvalue()) == plain.getvalue()
    assert photographs.without_exif(plain.getvalue()[:30]) == plain.getvalue()[:30], "cut off"
