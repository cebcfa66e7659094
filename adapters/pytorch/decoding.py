"""Photographs as bytes until they reach the device: decoded by readers and scaled by torch, or decoded there, too.

torch's antialiased bilinear scaling of bytes is the same triangle filter as Pillow's, in vector instructions: a third
of the time, one level off at most. A batch of bytes is a quarter of the memory that readers hand over and a GPU copies.

On the device torchvision's decoder (nvJPEG) makes pixels of the files that readers hand over.

What that decoder does not take the readers decode, as without it: other formats than JPEG, CMYK and RGB JPEGs, and
images so long that far more would be scaled than is cut out.
"""

import re
from functools import partial
from io import BytesIO
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import get_worker_info

from stagebench.suite.worker.contract import Unavailable
from stagebench.suite.worker.photographs import Photographs, naming, opened_image, random_box
from stagebench.suite.worker.sources import Source
from stagebench.workloads.catalogue import Box, Preprocessing

LARGEST = 8  # crops: of an image that is much longer than wide, more would be scaled than is cut out
TOGETHER = 1 << 26  # pixels decoded and scaled at once: 18 bytes of memory each; a larger image is alone
STATUS = re.compile(r": (\d+)$")  # how torchvision's errors end, with what nvJPEG answered
# Of nvjpegStatus_t: a bad JPEG, of a kind that it does not decode (twice), one that is cut short; no memory.
OF_A_FILE, FULL = ("3", "4", "9", "10"), "5"
Decode = Callable[[List[Tensor]], List[Tensor]]  # files' bytes to uint8 (3, height, width) on the device
REMEDY = "install the torchvision that goes with torch %s, or use decode = 'host'"


class ImageFiles(Source):
    """The files of another source, whose samples a subclass makes in its own way."""

    def __init__(self, source: Source) -> None:
        assert source.files is not None
        assert source.photographs is not None
        self._files = source.files
        self._photographs = source.photographs
        self.name = source.name
        self.classes = source.classes

    def __len__(self) -> int:
        return len(self._files)


class Pixels(ImageFiles):
    """Image files as uint8 tensors (height, width, 3), not normalised."""

    def sample(self, index: int) -> Tuple[Any, int]:
        """The centre crop of one image; OSError names an unreadable file."""
        path, label = self._files[index]
        with naming(path):
            return centre(self._photographs, path), label

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[Any, int]:
        """A random crop of it, perhaps flipped; its box is no multiple of a pixel, which torch cannot scale."""
        path, label = self._files[index]
        pixels = self._photographs.decoded(path, path, partial(random_box, self._photographs.how, stream))
        flipped = stream.random_sample() < self._photographs.how.flip
        return torch.from_numpy(np.array(pixels[:, ::-1] if flipped else pixels)), label


class Cut(NamedTuple):
    """A centre crop out of the whole image, scaled: to which height and width, and where the crop begins."""

    height: int
    width: int
    top: int
    left: int


def cut_of(size: Tuple[int, int], box: Box, crop: int) -> Cut:
    """For an image of (width, height) and its `Preprocessing.centre` box."""
    # pixels of the image for one of the crop
    across = (box[2] - box[0]) / crop
    down = (box[3] - box[1]) / crop
    whole = int(round(size[1] / down)), int(round(size[0] / across))
    return Cut(*whole, int(round(box[1] / down)), int(round(box[0] / across)))


def wasteful(cut: Cut, crop: int) -> bool:
    """Return whether far more would be scaled than is cut out."""
    return cut.width * cut.height > LARGEST * crop * crop


def centre(photographs: Photographs, file: Any) -> Tensor:
    """The centre crop: the whole image is scaled, then cut at whole pixels."""
    crop = photographs.crop
    image, box = photographs.opened(file, partial(photographs.how.centre, crop=crop))
    cut = cut_of(image.size, box, crop)
    if wasteful(cut, crop):
        return torch.from_numpy(np.array(photographs.scaled(image, box)))
    whole = torch.from_numpy(np.array(image))[None].permute(0, 3, 1, 2)
    scaled = functional.interpolate(whole, (cut.height, cut.width), mode="bilinear", antialias=True)
    return scaled[0].permute(1, 2, 0)[cut.top : cut.top + crop, cut.left : cut.left + crop]


class Normalise:
    """Bytes (samples, height, width, 3) to float32 (samples, 3, height, width), in channels-last memory."""

    def __init__(self, how: Preprocessing, crop: int, device: Any) -> None:
        # A line at a time: three numbers in a row are too few for vector instructions.
        self._mean = torch.tensor(how.mean, dtype=torch.float32, device=device).repeat(crop)
        self._deviation = torch.tensor(how.deviation, dtype=torch.float32, device=device).repeat(crop)

    def __call__(self, pixels: Tensor) -> Tensor:
        """With the same roundings as the plain source's."""
        samples, height, width, channels = pixels.shape
        lines = pixels.reshape(samples, height, width * channels).to(torch.float32)
        return lines.sub_(self._mean).div_(self._deviation).view(pixels.shape).permute(0, 3, 1, 2)


class File(NamedTuple):
    """An image file, not decoded."""

    content: Tensor  # uint8, its bytes
    size: Tuple[int, int]  # width and height, as its header has them
    path: str


Sample = Union[File, Tensor]  # or the crop, uint8 (height, width, 3)


class Encoded(NamedTuple):
    """A batch of images, one after the other in one tensor: few things to pass on."""

    content: Tensor  # uint8
    lengths: List[int]
    sizes: List[Optional[Tuple[int, int]]]  # None of a crop
    paths: List[str]  # "" of a crop


class Files(ImageFiles):
    """Image files, read and not decoded."""

    def sample(self, index: int) -> Tuple[Any, int]:
        """A `File`, or the crop of one that the device's decoder does not take; OSError names an unreadable one."""
        path, label = self._files[index]
        crop = self._photographs.crop
        with naming(path):
            with opened_image(path) as opened:
                size: Tuple[int, int] = opened.size
                fits = opened.format == "JPEG" and opened.mode in ("RGB", "L")
                # Red, green and blue as they are: decoders differ.
                fits = fits and opened.info.get("adobe_transform") != 0
                opened.fp.seek(0)
                content = bytearray(opened.fp.read())
            box = self._photographs.how.centre(*size, crop=crop)
            if not fits or wasteful(cut_of(size, box, crop), crop):
                return centre(self._photographs, path), label
        return File(torch.frombuffer(content, dtype=torch.uint8), size, path), label


def packed(images: Sequence[Sample]) -> Encoded:
    """A batch of what `Files` gives."""
    contents = [image.content if isinstance(image, File) else image.reshape(-1) for image in images]
    content = torch.cat(contents)
    if get_worker_info() is not None:
        # Else the thread that hands batches over would, and a process that ends during that aborts.
        content.share_memory_()
    sizes = [image.size if isinstance(image, File) else None for image in images]
    paths = [image.path if isinstance(image, File) else "" for image in images]
    return Encoded(content, [len(content) for content in contents], sizes, paths)


def decoder_on(device: torch.device) -> Decode:
    """torchvision's, tried once, which also sets nvJPEG up; Unavailable says what is missing."""
    from PIL import Image

    tiny = BytesIO()
    Image.new("RGB", (16, 16)).save(tiny, "JPEG")
    try:
        from torchvision.io import ImageReadMode, decode_jpeg

        decode = partial(decode_jpeg, mode=ImageReadMode.RGB, device=device)
        decode([torch.frombuffer(bytearray(tiny.getvalue()), dtype=torch.uint8)])
    except ImportError as error:
        raise Unavailable(f"decode = 'gpu' wants torchvision: {error}; {REMEDY % torch.__version__}")
    except (OSError, RuntimeError) as error:  # one that is built for another torch, or without nvJPEG
        words = "decode = 'gpu' wants torchvision, which fails here: %s; %s"
        raise Unavailable(words % (first_line(error), REMEDY % torch.__version__))
    return decode


class Decoder:
    """Batches of files to batches of centre crops, for one device; on a GPU during the step that computes there."""

    def __init__(self, photographs: Photographs, decode: Decode, device: torch.device) -> None:
        self._photographs = photographs
        self._decode = decode
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._before: Any = None  # an event, reached when the step before the last batch's is done

    def __call__(self, batch: Encoded) -> Tensor:
        """uint8 (samples, crop, crop, 3), for what is queued next; OSError names a file that cannot be decoded."""
        if self._stream is None:
            return self._crops(batch)
        computing = torch.cuda.current_stream(self._device)
        if self._before is not None:
            self._before.synchronize()  # a host that runs ahead fills no memory
        self._before = computing.record_event()
        with torch.cuda.stream(self._stream):
            crops = self._crops(batch)
        computing.wait_stream(self._stream)
        crops.record_stream(computing)
        return crops

    def _crops(self, batch: Encoded) -> Tensor:
        contents = batch.content.split(batch.lengths)
        crop = self._photographs.crop
        order = [place for place, size in enumerate(batch.sizes) if size is None]
        found = [contents[place].view(1, crop, crop, 3).to(self._device) for place in order]
        for places in pieces(batch.sizes):
            decoded = self._decoded([contents[place] for place in places], [batch.paths[place] for place in places])
            alike: Dict[Any, List[int]] = {}
            for number, image in enumerate(decoded):
                alike.setdefault(image.shape, []).append(number)
            for numbers in alike.values():
                found.append(self._scaled(torch.stack([decoded[number] for number in numbers])))
                order += [places[number] for number in numbers]
        back = torch.tensor(order).argsort()
        return torch.cat(found).index_select(0, back.to(self._device))

    def _decoded(self, files: List[Tensor], paths: List[str]) -> List[Tensor]:
        if self._stream is not None:
            # nvJPEG writes on a stream that waits for no other, into memory that is free on the current one: what still
            # runs there may use it. On this stream little does; on the one that computes, a step.
            self._stream.synchronize()
        try:
            return self._with_memory(files)
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if len(files) > 1:  # whose is it?
                for file, path in zip(files, paths):
                    self._decoded([file], [path])
                raise
            words = f"cannot decode {paths[0]}: {first_line(error)}"
            if status(error) not in (None, *OF_A_FILE):
                raise RuntimeError(words)
            raise OSError(f"{words}; replace it, move it out of the set, or use decode = 'host'")

    def _with_memory(self, files: List[Tensor]) -> List[Tensor]:
        """Decode; nvJPEG has memory of its own, and knows nothing of what PyTorch holds and does not use."""
        try:
            return self._decode(files)
        except RuntimeError as error:
            if status(error) != FULL:
                raise
        torch.cuda.empty_cache()
        try:
            return self._decode(files)
        except RuntimeError as error:
            if status(error) != FULL:
                raise
            raise torch.cuda.OutOfMemoryError(f"nvJPEG is out of memory: {first_line(error)}")

    def _scaled(self, images: Tensor) -> Tensor:
        """Bytes (samples, 3, height, width) to crops, as `pixels.centre`; in float32, since GPUs scale no bytes so."""
        crop = self._photographs.crop
        (height, width) = images.shape[2:]
        cut = cut_of((width, height), self._photographs.how.centre(width, height, crop), crop)
        size = cut.height, cut.width
        scaled = functional.interpolate(images.to(torch.float32), size, mode="bilinear", antialias=True)
        scaled = scaled[:, :, cut.top : cut.top + crop, cut.left : cut.left + crop]
        return scaled.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def status(error: Exception) -> Optional[str]:
    """Return nvJPEG's answer; None of another decoder."""
    found = STATUS.search(first_line(error))
    return found.group(1) if found else None


def pieces(sizes: Sequence[Optional[Tuple[int, int]]]) -> Iterator[List[int]]:
    """The places of all files of a batch, in pieces of at most `TOGETHER` pixels, or of one file."""
    piece: List[int] = []
    pixels = 0
    for place, size in enumerate(sizes):
        if size is None:
            continue
        if piece and pixels + size[0] * size[1] > TOGETHER:
            yield piece
            piece = []
            pixels = 0
        piece.append(place)
        pixels += size[0] * size[1]
    if piece:
        yield piece
