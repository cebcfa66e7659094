"""The generator of queries: how it reads answers."""

import pytest

from suite.worker.generator import _joined

WHOLE = b"3\r\nabc\r\n2;kind=last\r\nde\r\n0\r\n\r\n"


def test_a_body_may_come_in_chunks():
    assert _joined(WHOLE) == b"abcde"


@pytest.mark.parametrize("come", [0, 1, 4, 9, len(WHOLE) - 1])
def test_chunks_are_waited_for(come):
    assert _joined(WHOLE[:come]) is None
