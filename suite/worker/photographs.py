"""The way from an image file's bytes to a network's input, by Pillow, as `stagebench.workloads.catalogue` states it.

The files' formats are in FORMATS, whatever their names say; of an animation or a document the first picture is read.
What frameworks' decoders read differently is read by Pillow, or packed as a PNG (`common`).
"""

import math
import os
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from io import BufferedReader, BytesIO, FileIO
from typing import Any, Callable, Iterator, Optional, Tuple

import numpy as np

from stagebench.suite.worker.array_files import FREE
from stagebench.suite.worker.image_folder import escaped
from stagebench.workloads.catalogue import PHOTOGRAPHS, Box, Preprocessing

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")  # Pillow's names
READ = f"{', '.join(FORMATS[:-1])} and {FORMATS[-1]}"
BEGIN, START_OF_SCAN, EXIF = b"\xff\xd8", 0xDA, 0xE1  # a JPEG's first bytes, two of its markers


@lru_cache(maxsize=None)
def decoder() -> Optional[Any]:
    """Return the module simplejpeg if it is needed and installed, else None.

    The last Pillow for Python 3.6 has IJG's libjpeg 9, which interpolates colours differently (1 level of 255 off on
    the average, 20 at edges) and is slower. simplejpeg brings libjpeg-turbo there; without it, Pillow decodes alone.
    """
    from PIL import features

    if features.check("libjpeg_turbo"):
        return None
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


@contextmanager
def opened_image(file: Any) -> Iterator[Any]:
    """Open a path or a file's bytes as a Pillow image; ValueError for another format or for too many pixels."""
    from PIL import Image, UnidentifiedImageError  # here: sources of arrays need no decoder

    Image.MAX_IMAGE_PIXELS = None  # Pillow would warn of large photographs; `refuse_huge` has the limits
    with Encoded(file) if isinstance(file, bytes) else Within(file) as stream:
        try:
            image = Image.open(stream, formats=FORMATS)
        except UnidentifiedImageError:
            stream.seek(0)
            with suppress(UnidentifiedImageError), Image.open(stream) as other:
                raise ValueError(f"its format is {other.format}; {READ} are read")
            raise ValueError(f"not an image whose format is known; {READ} are read")
        with image:
            refuse_huge(image, len(file) if isinstance(file, bytes) else os.path.getsize(file))
            yield image


def in_rgb(opened: Any) -> Any:
    """Return an opened Pillow image in RGB: of 16 bits the upper 8, as libpng has them; without its transparency."""
    from PIL import Image

    turbo = decoder()
    if turbo is not None and opened.format in ("JPEG", "MPO"):
        inks = opened.mode == "CMYK"
        with suppress(ValueError):  # simplejpeg raises it for mere warnings, too: Pillow distinguishes them from errors
            opened.fp.seek(0)
            pixels = turbo.decode_jpeg(opened.fp.read(), "CMYK" if inks else "RGB")
            return Image.fromarray(255 - pixels, "CMYK").convert("RGB") if inks else Image.fromarray(pixels)
    if opened.mode.startswith("I;16") or (opened.mode == "I" and opened.format == "PNG"):  # Pillow would clip them
        return Image.fromarray((np.asarray(opened) >> 8).astype(np.uint8)).convert("RGB")
    if opened.mode in ("I", "F"):
        raise ValueError("its pixels are numbers of 32 bits; 8 and 16 are read")
    if opened.mode == "P" and "transparency" in opened.info:
        return opened.convert("RGBA").convert("RGB")  # in one step Pillow warns
    return opened.convert("RGB")


def common(encoded: bytes) -> bytes:
    """Return an image file that all decoders read alike: a JPEG in grey or YCbCr, a PNG of 8 bits, or made a PNG."""
    with opened_image(encoded) as image:
        jpeg, png = encoded[:2] == BEGIN, image.format == "PNG"
        if (jpeg and image.mode in ("L", "RGB")) or (png and encoded[PNG_BITS] == 8):
            return encoded
        pixels = in_rgb(image)
    written = BytesIO()
    pixels.save(written, "PNG")
    return written.getvalue()


def without_exif(encoded: bytes) -> bytes:
    """Return a JPEG's bytes without its Exif, and any other file as it is.

    OpenCV, unlike all other readers, turns images by their Exif.
    """
    if encoded[:2] != BEGIN:
        return encoded
    kept = [BEGIN]
    place = 2
    while encoded[place : place + 1] == b"\xff" and encoded[place + 1] != START_OF_SCAN:
        end = place + 2 + int.from_bytes(encoded[place + 2 : place + 4], "big")
        if encoded[place + 1] != EXIF or encoded[place + 4 : place + 8] != b"Exif":
            kept.append(encoded[place:end])
        place = end
    return b"".join(kept) + encoded[place:]


BILINEAR = 2  # Pillow's number: the name moved between the releases for Python 3.6 and 3.13
TRIES = 10
PIXEL_BYTES = 4  # of a pixel as it is decoded
MOST_PIXELS = (1 << 29) // 3  # of an image: TensorFlow's limit, and where Pillow calls an image a bomb
DENSE = 400  # bytes of pixels to a byte of a file beyond FREE: a JPEG of one colour has 341
PNG_BITS = 24  # the place of the bits of a channel in a PNG's header
LARGE = 1 << 20  # bytes; smaller reads are not checked: Pillow makes many
QUALITY = 95  # of JPEGs encoded anew, as MXNet's im2rec does


class Photographs:
    """A preprocessor that cuts, scales and normalises; it takes a file's path, or its content as bytes."""

    def __init__(self, how: Preprocessing, crop: int) -> None:
        """`crop` is the side of the network's input; ValueError if it is larger than the resized image."""
        if crop > how.resize:
            raise ValueError(
                f"{crop} pixels cannot be cut from images of {how.resize}; the workload's preprocessing wants a "
                "larger `resize`"
            )
        self.how = how
        self.crop = crop
        self._mean = np.array(how.mean, dtype=np.float32).reshape(-1, 1, 1)
        self._deviation = np.array(how.deviation, dtype=np.float32).reshape(-1, 1, 1)

    def centre(self, file: Any, name: str) -> np.ndarray:
        """Return the centre crop: float32 (3, crop, crop). OSError with `name` if the image cannot be decoded."""
        return self.normalised(self.decoded(file, name, partial(self.how.centre, crop=self.crop)))

    def random(self, file: Any, name: str, stream: np.random.RandomState) -> np.ndarray:
        """Return a random resized crop, perhaps flipped."""
        pixels = self.decoded(file, name, partial(random_box, self.how, stream))
        return self.normalised(pixels[:, ::-1] if stream.random_sample() < self.how.flip else pixels)

    def decoded(self, file: Any, name: str, box_of: Callable[[int, int], Box]) -> np.ndarray:
        """Return the box `box_of(width, height)`, scaled to the crop: uint8 (height, width, 3)."""
        with naming(name):
            image, box = self.opened(file, box_of)
            return self.scaled(image, box)

    def opened(self, file: Any, box_of: Callable[[int, int], Box]) -> Tuple[Any, Box]:
        """Return Pillow's RGB image and its box.

        Call it within `naming` the file: decoders raise what they like.
        """
        with opened_image(file) as opened:
            # libjpeg could scale while it decodes (`draft`), but by another filter than the one that is stated.
            return in_rgb(opened), box_of(*opened.size)

    def scaled(self, image: Any, box: Box) -> np.ndarray:
        """Return the box of a Pillow image, scaled to the crop: uint8 (height, width, 3)."""
        return np.asarray(image.resize((self.crop, self.crop), BILINEAR, box=box))

    def normalised(self, pixels: np.ndarray) -> np.ndarray:
        """Convert uint8 HWC to float32 CHW, contiguous, with the mean and deviation of each channel."""
        # Into a new array: NumPy would keep the order in memory, and every batch would be transposed later.
        found = np.empty((3,) + pixels.shape[:2], dtype=np.float32)
        np.subtract(pixels.transpose(2, 0, 1), self._mean, out=found)
        return np.divide(found, self._deviation, out=found)

    def levels(self, images: np.ndarray) -> np.ndarray:
        """Convert normalised images (..., 3, height, width) back to values from 0 to 255, not rounded."""
        return np.asarray(images, dtype=np.float32) * self._deviation + self._mean


def refuse_huge(opened: Any, length: int) -> None:
    """Raise ValueError for an opened Pillow image of more pixels than a file of `length` bytes lets one expect.

    Pillow allocates them all before it finds that they are missing.
    """
    width, height = opened.size
    if width * height > MOST_PIXELS:
        raise ValueError(f"it has {width} x {height} pixels, and {MOST_PIXELS} in all are read")
    if PIXEL_BYTES * width * height > max(FREE, DENSE * length):
        raise ValueError(f"its header promises {width} x {height} pixels, too many for {length} bytes")


class Encoded(BytesIO):
    """The bytes of an image file; Pillow's messages name it, and equal errors have equal messages."""

    def __repr__(self) -> str:
        return "<its bytes>"


class Within(BufferedReader):
    """An image file whose reads end with it, since Python allocates whatever size a header promises.

    Pillow's messages name its path, as if Pillow had opened it.
    """

    def __init__(self, path: Any) -> None:
        """Open the file; OSError if it cannot be opened."""
        super().__init__(FileIO(path))
        self._path, self._length = path, os.fstat(self.fileno()).st_size

    def read(self, size: Optional[int] = -1) -> bytes:
        if size is not None and size > LARGE:
            size = min(size, max(self._length - self.tell(), 0))
        return super().read(size)

    def __repr__(self) -> str:
        return repr(os.fspath(self._path))


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Raise any error of a decoder in here as an OSError that names the image.

    Errors of all kinds are caught: Pillow has an exception of its own for a bomb. MemoryError passes.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise OSError(f"cannot read the image {escaped(name)}: {reason}; replace it, or move it out of the set")


def random_box(how: Preprocessing, stream: np.random.RandomState, width: int, height: int) -> Box:
    """Return a box of a random area and ratio of its sides; the largest centre square if ten tries do not fit."""
    for _ in range(TRIES):
        area = stream.uniform(*how.area) * width * height
        ratio = math.exp(stream.uniform(math.log(how.ratio[0]), math.log(how.ratio[1])))
        across = math.sqrt(area * ratio)
        down = math.sqrt(area / ratio)
        if across <= width and down <= height:
            left = stream.uniform(0, width - across)
            top = stream.uniform(0, height - down)
            return left, top, left + across, top + down
    side = min(width, height)
    return (width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2


def shrunk(encoded: bytes, side: int) -> bytes:
    """Return a JPEG of the image with its shorter side scaled to `side`; the given bytes if it is not larger."""
    with opened_image(encoded) as opened:
        width, height = opened.size
        if min(width, height) <= side:
            return encoded
        small = in_rgb(opened).resize(PHOTOGRAPHS._replace(resize=side).scaled(width, height), BILINEAR)
    written = BytesIO()
    small.save(written, "JPEG", quality=QUALITY)
    return written.getvalue()
