"""The decoding of JPEG files by libjpeg-turbo if Pillow has another library.

The last Pillow for Python 3.6 has IJG's libjpeg 9, which interpolates colours differently (1 level of 255 off on the
average, 20 at edges) and is slower. simplejpeg brings libjpeg-turbo there; without it, Pillow's own library decodes.
"""

from functools import lru_cache
from typing import Any, Optional

BEGIN, START_OF_SCAN, EXIF = b"\xff\xd8", 0xDA, 0xE1  # a JPEG's first bytes, two of its markers


@lru_cache(maxsize=None)
def decoder() -> Optional[Any]:
    """Return the module simplejpeg if it is needed and installed, else None."""
    from PIL import features

    if features.check("libjpeg_turbo"):
        return None
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def decoded(opened: Any) -> Any:
    """Return an opened Pillow image in RGB."""
    turbo = decoder()
    if turbo is not None and opened.format == "JPEG" and opened.mode in ("RGB", "L"):
        try:
            return by_turbo(turbo, opened)
        except ValueError:
            pass  # simplejpeg raises for mere warnings, too: Pillow distinguishes them from errors
    return opened.convert("RGB")


def by_turbo(turbo: Any, opened: Any) -> Any:
    """Return an opened image, decoded by simplejpeg; ValueError if anything is wrong with the file."""
    from PIL import Image

    opened.fp.seek(0)
    return Image.fromarray(turbo.decode_jpeg(opened.fp.read(), "RGB"))


def without_exif(encoded: bytes) -> bytes:
    """Return a JPEG's bytes without its Exif, and any other file as it is.

    OpenCV, unlike all other readers, turns images by their Exif.
    """
    if encoded[:2] != BEGIN:
        return encoded
    kept, place = [BEGIN], 2
    while encoded[place : place + 1] == b"\xff" and encoded[place + 1] != START_OF_SCAN:
        end = place + 2 + int.from_bytes(encoded[place + 2 : place + 4], "big")
        if encoded[place + 1] != EXIF or encoded[place + 4 : place + 8] != b"Exif":
            kept.append(encoded[place:end])
        place = end
    return b"".join(kept) + encoded[place:]
