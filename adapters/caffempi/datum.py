"""Caffe's Datum, the message that its databases hold, as bytes (Caffe's src/caffe/proto/caffe.proto).

    message Datum {
      optional int32 channels = 1;  optional int32 height = 2;  optional int32 width = 3;
      optional bytes data = 4;      optional int32 label = 5;
      repeated float float_data = 6;  optional bool encoded = 7 [default = false];
    }

Written by hand: the fields are few, and Caffe reads what is written here.
"""

import struct
from typing import Any, NamedTuple, Tuple

import numpy as np

CHANNELS, HEIGHT, WIDTH, DATA, LABEL, FLOATS, ENCODED = range(1, 8)
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # protobuf's types on the wire


class Datum(NamedTuple):
    """A sample: an image file's bytes (`encoded`), or pixels, as bytes or as floats."""

    label: int
    shape: Tuple[int, ...]  # (channels, height, width); (0, 0, 0) for an encoded image
    data: Any  # bytes: the file, or a level a pixel
    floats: Any  # float32, where there is no data
    encoded: bool

    def to_bytes(self) -> bytes:
        fields = [number(key, size) for key, size in zip((CHANNELS, HEIGHT, WIDTH), self.shape) if size]
        if len(self.data):
            fields.append(block(DATA, self.data))
        fields.append(number(LABEL, self.label))
        if len(self.floats):
            fields.append(block(FLOATS, np.asarray(self.floats, "<f4").tobytes()))
        if self.encoded:
            fields.append(number(ENCODED, 1))
        return b"".join(fields)


def parsed(message: Any) -> Datum:
    """The sample in a message (bytes or memoryview); its data are a view, not a copy. ValueError: not a Datum."""
    found = {DATA: message[:0], FLOATS: message[:0]}
    at = 0
    end = len(message)
    try:
        while at < end:
            tag, at = varint(message, at)
            wire = tag & 7
            if wire == VARINT:
                found[tag >> 3], at = varint(message, at)
                continue
            size, at = (8, at) if wire == FIXED64 else (4, at) if wire == FIXED32 else varint(message, at)
            if wire not in (FIXED64, BYTES, FIXED32) or at + size > end:
                raise ValueError(f"field {tag >> 3} does not end in the message")
            found[tag >> 3] = message[at : at + size]
            at += size
        shape = tuple(int(found.get(key, 0)) for key in (CHANNELS, HEIGHT, WIDTH))
        floats = np.frombuffer(found[FLOATS], "<f4")
        return Datum(int(found[LABEL]), shape, found[DATA], floats, bool(found.get(ENCODED, 0)))
    except (IndexError, KeyError, TypeError, struct.error) as error:
        raise ValueError(f"not a Datum: {error or type(error).__name__}")


def number(key: int, value: int) -> bytes:
    """A field that holds a number, zero or more."""
    return bytes(varint_of(key << 3 | VARINT)) + bytes(varint_of(value))


def block(key: int, content: bytes) -> bytes:
    return bytes(varint_of(key << 3 | BYTES)) + bytes(varint_of(len(content))) + bytes(content)


def varint_of(value: int) -> bytearray:
    """Seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return found


def varint(message: Any, at: int) -> Tuple[int, int]:
    """(the number that begins there, where it ends)."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
