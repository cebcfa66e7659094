"""The messages of the Open Inference Protocol over gRPC, written and read without generated code.

They are protocol buffers (https://protobuf.dev/programming-guides/encoding); their fields have the numbers of
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/open_inference_grpc.proto.

Oldest Python: 3.6.
"""

from typing import Iterator, Sequence, Tuple

MODEL, INPUTS, OUTPUTS, RAW_INPUTS = 1, 5, 6, 7  # of ModelInferRequest
NAME, TYPE, SHAPE = 1, 2, 3  # of its tensors
RAW_OUTPUTS = 6  # of ModelInferResponse
LENGTH = 2  # the wire type of a field whose length is written before it


def request(model: str, tensor: str, kind: str, shape: Sequence[int], content: bytes, output: str) -> bytes:
    """Return a ModelInferRequest with one tensor as raw bytes, asking for one output."""
    described = _field(NAME, tensor.encode()) + _field(TYPE, kind.encode())
    described += _field(SHAPE, b"".join(map(_varint, shape)))
    message = _field(MODEL, model.encode()) + _field(INPUTS, described)
    return message + _field(OUTPUTS, _field(NAME, output.encode())) + _field(RAW_INPUTS, content)


def answer(message: bytes) -> bytes:
    """Return the bytes of a ModelInferResponse's only output; IndexError, KeyError or ValueError if it has none."""
    return dict(_fields(message))[RAW_OUTPUTS]


def _varint(number: int) -> bytes:
    """Return an unsigned number, seven bits a byte."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(written) + bytes([number])


def _field(number: int, content: bytes) -> bytes:
    """Return a field with a length: a string, bytes, a message or packed numbers."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _fields(message: bytes) -> Iterator[Tuple[int, bytes]]:
    """Yield (number, content) of a message's fields; all fields of an answer have a length."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(message):
        number, kind = divmod(varint(), 8)
        size = varint()
        if kind != 2 or at + size > len(message):
            raise ValueError(f"field {number} of kind {kind} with {size} bytes")
        yield number, message[at : at + size]
        at += size
