"""JPEG files by libjpeg-turbo where Pillow has another library.

The last Pillow for Python 3.6 has IJG's libjpeg 9, which interpolates colours differently (1 level of 255 off on the
average, 20 at edges) and is slower. simplejpeg brings libjpeg-turbo there; without it Pillow's own library serves.

Oldest Python: 3.6.
"""

from functools import lru_cache
from typing import Any, Optional, Tuple

FACTORS = (8, 4, 2, 1)  # by which Pillow lets a decoder scale down


@lru_cache(maxsize=None)
def decoder() -> Optional[Any]:
    """The module simplejpeg where it is needed and installed, else None."""
    from PIL import features

    if features.check("libjpeg_turbo"):
        return None
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def decoded(opened: Any, wanted: Tuple[int, int]) -> Any:
    """An opened Pillow image in RGB; a JPEG at the smallest of its scales that has (width, height) pixels or more."""
    turbo = decoder()
    if turbo is not None and opened.format == "JPEG" and opened.mode in ("RGB", "L"):
        try:
            return by_turbo(turbo, opened, wanted)
        except ValueError:
            pass  # it raises for what is only a warning, too: Pillow tells which
    opened.draft("RGB", wanted)
    return opened.convert("RGB")


def by_turbo(turbo: Any, opened: Any, wanted: Tuple[int, int]) -> Any:
    """The same by simplejpeg; ValueError where anything is wrong with the file."""
    from PIL import Image

    factor = factor_of(opened.size, wanted)
    width, height = (-(-side // factor) for side in opened.size)
    opened.fp.seek(0)
    return Image.fromarray(turbo.decode_jpeg(opened.fp.read(), "RGB", min_width=width, min_height=height))


def factor_of(size: Tuple[int, int], wanted: Tuple[int, int]) -> int:
    """The factor that `Image.draft` takes."""
    most = min(size[0] // wanted[0], size[1] // wanted[1])
    return next((factor for factor in FACTORS if factor <= most), 1)
