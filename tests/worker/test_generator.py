"""The generator of queries: how it reads answers."""

import numpy as np
import pytest

from suite.worker import infer_messages, protocols
from suite.worker.http_link import _joined

WHOLE = b"3\r\nabc\r\n2;kind=last\r\nde\r\n0\r\n\r\n"


def test_a_body_may_come_in_chunks():
    assert _joined(WHOLE) == b"abcde"


@pytest.mark.parametrize("come", [0, 1, 4, 9, len(WHOLE) - 1])
def test_chunks_are_waited_for(come):
    assert _joined(WHOLE[:come]) is None


LIKE = np.arange(40, dtype=np.float32)
# A model's name, a version and one output's bytes, as Triton answers.
MESSAGE = b"\x0a\x07queries\x12\x011" + b"\x32\xa0\x01" + LIKE.tobytes()


def test_an_answer_over_grpc_is_its_raw_contents():
    assert infer_messages.answer(MESSAGE) == LIKE.tobytes()
    assert (protocols.answer(protocols.GRPC, {}, MESSAGE, LIKE) == LIKE).all()


@pytest.mark.parametrize("body", [b"", MESSAGE[:9], MESSAGE[:-1], MESSAGE + b"\x08\x01", b"\xff" * 99, b"\x32\x00"])
def test_a_message_that_is_no_answer_is_malformed(body):
    assert protocols.answer(protocols.GRPC, {}, body, LIKE) is None
