"""The codec: what JSON cannot say, and what is refused by name."""

import json
import math
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import pytest

from stagebench.suite.worker.contract import SGD, Adam
from stagebench.suite.worker.typed_json import MARKER, from_json, load, to_json

NAN, INF = float("nan"), float("inf")


class Inner(NamedTuple):
    number: float
    word: str = "nothing"


class Outer(NamedTuple):
    count: int
    inner: Inner
    rows: List[Inner]
    pair: Tuple[int, ...]
    table: Dict[str, Dict[str, float]]
    free: Dict[str, Any]
    rule: Union[SGD, Adam]
    yes: bool = True
    perhaps: Optional[float] = None
    maybe: Optional[Inner] = None


ADAM = Adam(1.0, 2.0, 3.0, 4.0, 5.0)
FULL = Outer(3, Inner(0.5), [Inner(1.0, "a")], (1, 2), {"a": {"b": 0.25}}, {"any": [1, None]}, ADAM)


def through(value):
    """Over the wire and back."""
    return from_json(type(value), json.loads(json.dumps(to_json(value))), "outer")


def test_every_type_and_all_that_json_can_say_comes_back():
    assert through(FULL) == FULL
    other = FULL._replace(rule=SGD(1.0, 2.0, 3.0), perhaps=1.5, maybe=Inner(7.0))
    assert through(other) == other
    assert isinstance(through(other).rule, SGD)
    value = {"a": [1, "x", None, True, 2.5, {"b": ()}], "c": NAN}
    assert to_json(value) == {"a": [1, "x", None, True, 2.5, {"b": []}], "c": None}
    for number in (2, np.float64(2.0)):
        found = from_json(Inner, {"number": number}, "inner").number
        assert (found, type(found)) == (2.0, float)

    class Version(str):
        pass

    assert from_json(str, Version("2.13.0"), "here") == "2.13.0"


def test_none_is_left_out_and_what_is_no_number_is_null():
    content = to_json(FULL._replace(inner=Inner(NAN), perhaps=INF, table={"a": {"b": -INF}}))
    assert "maybe" not in content
    assert (content["inner"]["number"], content["perhaps"], content["table"]) == (None, None, {"a": {"b": None}})
    back = from_json(Outer, content, "outer")
    assert math.isnan(back.inner.number)
    assert math.isnan(back.perhaps)
    assert math.isnan(back.table["a"]["b"])
    assert back.maybe is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"count": 1.0}, r"outer\.count: a whole number is expected, not 1\.0 \(float\)"),
        ({"count": True}, r"outer\.count: a whole number is expected, not True \(bool\)"),
        ({"count": np.int64(1)}, r"outer\.count: a whole number is expected, not .*int64"),
        ({"count": None}, r"outer\.count: a whole number is expected, not null"),
        ({"yes": 1}, r"outer\.yes: true or false is expected, not 1 \(int\)"),
        ({"inner": []}, r"outer\.inner: an object is expected, not \[\] \(list\)"),
        ({"maybe": {"number": "x"}}, r"outer\.maybe\.number: a number is expected, not 'x' \(str\)"),
        ({"rows": [{"number": 1, "word": 2}]}, r"outer\.rows\[0\]\.word: a string is expected, not 2"),
        ({"rows": {}}, r"outer\.rows: a list is expected, not \{\} \(dict\)"),
        ({"pair": [1, "2"]}, r"outer\.pair\[1\]: a whole number is expected"),
        ({"table": {"a": {"b": "c"}}}, r"outer\.table\['a'\]\['b'\]: a number is expected"),
        ({"inner": {}}, r"outer\.inner: the field 'number' is missing"),
        ({"inner": {"number": 1, "size": 2}}, r"outer\.inner: unknown field 'size'; there are number, word"),
        ({"rule": {"lr": 1.0}}, r"outer\.rule: the field 'momentum' is missing"),
    ],
)
def test_what_does_not_fit_is_named(changes, error):
    with pytest.raises(ValueError, match=error):
        from_json(Outer, dict(to_json(FULL), **changes), "outer")


def test_a_file_that_is_larger_than_it_can_be_is_not_read(tmp_path):
    with open(str(tmp_path / "dataset.json"), "wb") as stream:
        stream.truncate(MARKER + 1)
    with pytest.raises(ValueError, match=r"dataset\.json has %d bytes" % (MARKER + 1)):
        load(Any, str(tmp_path / "dataset.json"))
    with pytest.raises(ValueError, match=r"dataset\.json .*no JSON"):
        load(Any, str(tmp_path / "dataset.json"), MARKER + 1)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path):
    os.mkfifo(str(tmp_path / "dataset.json"))
    with pytest.raises(ValueError, match=r"dataset\.json .*regular file"):
        load(Any, str(tmp_path / "dataset.json"))
    with pytest.raises(IsADirectoryError):
        load(Any, str(tmp_path))
    with pytest.raises(FileNotFoundError):
        load(Any, str(tmp_path / "nothing.json"))
