"""How inputs are broken: bytes, JSON, and files of a kind whose headers promise what does not follow."""

import io
import json
import struct
import zipfile
import zlib
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from stagebench.suite.results.stored import sealed
from stagebench.suite.worker import array_files

ODD: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["", "..", "/", "\x1b[31m", "a" * 5000, "-o", "${HOME}", "nan", "1e999", 10**400, -1, 0, [], {}]),
)
EXTENTS = st.one_of(st.integers(0, 5), st.integers(2**26, 2**32 - 1))  # as they are, and as nobody has them


@st.composite
def broken_bytes(draw: Any, whole: Any) -> bytes:
    """Bytes with a few cuts, flips and insertions."""
    found = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(0, len(found) - 1)))
        match draw(st.integers(0, 3)):
            case 0:
                del found[place:]
            case 1:
                found[place : place + draw(st.integers(0, 40))] = b""
            case 2:
                found[place:place] = draw(st.binary(max_size=12))
            case _:
                if found:
                    found[place] = draw(st.integers(0, 255))
    return bytes(found)


def alike(value: Any) -> Any:
    """Others of the same kind, beyond what whoever computes with them may expect."""
    match value:
        case bool() | str() | None:
            return st.sampled_from([value, False] if isinstance(value, bool) else [value, "", "x"])
        case int():
            return st.sampled_from([0, -1, 1, value + 1, 10**9, 10**30])
        case float():
            return st.sampled_from([0.0, -1.0, value / 1000, 1e-300, 1e9, 1e300])
        case list():
            return st.sampled_from([[], value[:1], value[:-1], value + value])
    return st.sampled_from([{}, dict(list(value.items())[1:])])


@st.composite
def broken_json(draw: Any, whole: Any) -> bytes:
    """JSON with a few values of another kind, sealed as its writer would."""
    content, like = json.loads(draw(whole)), draw(st.booleans())  # `like`: what a parser takes, in the inner parts
    for _ in range(draw(st.integers(1, 3))):
        place = content
        while isinstance(place, dict | list) and place:
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            inner = [key for key in keys if place[key] and isinstance(place[key], dict | list)]
            key = draw(st.sampled_from(inner if like and inner and draw(st.integers(0, 3)) else keys))
            if not place[key] or not isinstance(place[key], dict | list) or draw(st.integers(0, 2 + 2 * like)) == 0:
                place[key] = draw(alike(place[key]) if like else ODD)
                break
            place = place[key]
    if isinstance(content, dict) and isinstance(content.get("digest"), str):
        return sealed(json.dumps({**content, "digest": ""}, indent=1) + "\n").encode()
    return (json.dumps(content, indent=1) + "\n").encode()


@st.composite
def of_another_kind(draw: Any) -> bytes:
    """A whole file that is none of what is looked for."""
    deep = st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe\x00\x01", b"NaN", b"", b"\x00" * 64])
    value = st.recursive(ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
    return draw(st.one_of(deep, value.map(lambda each: json.dumps(each).encode())))


# --- arrays ------------------------------------------------------------------


def arrays() -> bytes:
    kept = io.BytesIO()
    np.savez(kept, images=np.arange(4 * 28 * 28).reshape(4, 28, 28).astype(np.uint8), labels=np.arange(4))
    return kept.getvalue()


def mnist() -> bytes:
    """MNIST's file of images."""
    return struct.pack(">4B3I", 0, 0, array_files.UNSIGNED_BYTES, 3, 4, 28, 28) + bytes(range(196)) * 16


@st.composite
def odd_mnist(draw: Any) -> bytes:
    """The same with other numbers of images, rows or columns."""
    extents = draw(st.lists(EXTENTS, max_size=5))
    header = struct.pack(f">4B{len(extents)}I", 0, 0, array_files.UNSIGNED_BYTES, len(extents), *extents)
    return header + bytes(range(draw(st.integers(0, 200))))


@st.composite
def odd_arrays(draw: Any) -> bytes:
    """An .npz whose members are another kind, shape or type than they should be."""
    kept = io.BytesIO()
    kinds = st.sampled_from(["u1", "i8", "f4", "f8", "?", "U3", "M8[s]", "c8", "O"])
    with zipfile.ZipFile(kept, "w") as archive:
        for name in draw(st.lists(st.sampled_from(["images", "labels", "more"]), max_size=3, unique=True)):
            kind, shape, member = draw(kinds), tuple(draw(st.lists(st.integers(0, 5), max_size=4))), io.BytesIO()
            if draw(st.booleans()):
                np.save(member, np.ones(shape).astype(kind), allow_pickle=True)
            else:  # a header that promises what does not follow
                shape = tuple(draw(st.lists(EXTENTS, max_size=4)))
                told = {"shape": shape, "fortran_order": False, "descr": np.dtype(kind).str}
                np.lib.format.write_array_header_1_0(member, told)
            archive.writestr(f"{name}.npy", draw(broken_bytes(st.just(member.getvalue()))))
    return kept.getvalue()


# --- images --------------------------------------------------------------------


def image(form: str, mode: str = "RGB", size: tuple[int, int] = (40, 36), **options: Any) -> bytes:
    """A small image of many colours in a format of Pillow's."""
    across, down = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    levels = np.stack([across * 6 % 256, down * 7 % 256, (across * down) % 256], axis=2).astype(np.uint8)
    written = io.BytesIO()
    Image.fromarray(levels).convert(mode).save(written, form, **options)
    return written.getvalue()


def turned() -> bytes:
    """A JPEG whose Exif turns it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return image("JPEG", exif=exif.tobytes())


FRAMES: dict[str, Any] = {"save_all": True, "append_images": [Image.new("RGB", (40, 36))]}  # of an animation
IMAGES = (
    image("JPEG"), turned(), image("JPEG", "L"), image("JPEG", "CMYK"), image("JPEG", progressive=True),
    image("PNG"), image("PNG", "P"), image("PNG", "RGBA"), image("PNG", "LA"), image("PNG", "I;16"),
    image("PNG", "1"), image("GIF", "P"), image("BMP"), image("TIFF"), image("PPM"), image("WEBP"),
    image("TIFF", "CMYK"), image("TIFF", "I;16"), image("WEBP", "RGBA", lossless=True), image("PNG", size=(1, 1)),
    *(image(form, **FRAMES) for form in ("GIF", "WEBP", "PNG", "TIFF")),
)  # fmt: skip


@st.composite
def odd_extents(draw: Any) -> bytes:
    """An image whose header has other extents than its pixels."""
    width, height = draw(st.integers(0, 2**16 - 1)), draw(st.integers(0, 2**16 - 1))
    if draw(st.booleans()):
        found = bytearray(draw(st.sampled_from([image("PNG"), image("PNG", "RGBA"), image("PNG", "I;16")])))
        found[16:24] = struct.pack(">2I", width, height)
        found[29:33] = struct.pack(">I", zlib.crc32(found[12:29]))
        return bytes(found)
    found = bytearray(draw(st.sampled_from([image("JPEG"), image("JPEG", progressive=True)])))
    begin = max(found.find(b"\xff\xc0"), found.find(b"\xff\xc2"))  # the frame's header
    found[begin + 5 : begin + 9] = struct.pack(">2H", height, width)
    return bytes(found)


# --- plans -----------------------------------------------------------------------

OF_TOML = ("1979-05-27", "07:32:00", "0x" + "f" * 5000, "1" * 5000, "{ a = 1 }", "[[1], {b = 2}]", "inf", "-nan")
DEEP = ("[" * 2000 + "]" * 2000, "{a=" * 500 + "1" + "}" * 500, "1." + "0" * 5000, '"' + "é" * 5000 + '"')
KEYS = ("adapter", "strategy", "workload", "batch", "ranks", "devices", "threads", "nodes", "data", "passes", "lr",
        "knobs", "hosts", "memory_limit", "precision", "optimiser", "tuning", "launcher", "schedule",
        "input")  # fmt: skip


@st.composite
def odd_plans(draw: Any) -> bytes:
    """Every key with any value."""
    value = st.one_of(ODD.map(toml), st.sampled_from(OF_TOML + DEEP))
    rows = [f"{key} = {draw(value)}" for key in draw(st.lists(st.sampled_from(KEYS), max_size=6, unique=True))]
    top = draw(
        st.sampled_from(['name = "x"', "", "most_cases = -1", "[sampling]\nsteps = 1e99", "[defaults]\nbatch = []"])
    )
    return "\n".join([top, "[[cases]]", 'adapter = ["reference", "pytorch"]', *rows]).encode(errors="surrogatepass")


def toml(value: Any) -> str:
    return "nan" if value is None else json.dumps(value).replace("Infinity", "inf").replace("NaN", "nan")
